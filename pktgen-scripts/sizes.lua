-- SPDX-License-Identifier: Apache-2.0
-- Frame sizes from the least to the largest over many destinations and a mix of codepoints. Settings: drive.lua.

package.path = package.path .. ";./?.lua"
local drive = require("drive")

-- 13 sizes, 64 to 1516 bytes.
local STEP = 121

drive.run(function(s)
  local sizes = { start = drive.min_size, min = drive.min_size, max = drive.max_size, inc = STEP }
  local destinations = drive.ranges(s, sizes)
  drive.send(s)
  local counts = drive.counts()
  counts.destinations = destinations
  return counts
end)
