-- SPDX-License-Identifier: Apache-2.0
-- Latency to one destination, one codepoint (the first of SLUICE_MIX), one size. Settings: drive.lua.
-- Frames of 128 bytes at least, since the generator writes its time stamp into the payload.

package.path = package.path .. ";./?.lua"
local drive = require("drive")

drive.run(function(s)
  s.size = math.max(s.size, 128)
  drive.single(s)
  -- both ends: the one stamps, the other reads the stamps
  pktgen.latency(drive.tx, "on")
  pktgen.latency(drive.rx, "on")
  drive.send(s)
  local counts = drive.counts()
  drive.latency(counts)
  return counts
end)
