-- SPDX-License-Identifier: Apache-2.0
-- Many destinations with a mix of ECN codepoints (SLUICE_MIX), all of one size. Settings: drive.lua.

package.path = package.path .. ";./?.lua"
local drive = require("drive")

drive.run(function(s)
  local sizes = { start = s.size, min = s.size, max = s.size, inc = 0 }
  local destinations = drive.ranges(s, sizes)
  drive.send(s)
  local counts = drive.counts()
  counts.destinations = destinations
  return counts
end)
