-- SPDX-License-Identifier: Apache-2.0
-- What the scripts share: settings, mixes of ECN codepoints, a guarded run, and the result file.
--
-- For Pktgen-DPDK 23.03 to 24.07. Port "0" sends towards Sluice's core port, port "1" takes what leaves its access port.
-- A Lua error leaves the generator running for ever, so all that can fail runs under pcall and every way out ends in
-- pktgen.quit(). seqTable is avoided: 24.07 does not apply its entries after the first.
--
-- Settings come from the environment, since Pktgen passes no arguments to a script:
--   SLUICE_SECONDS       how long to send (5)
--   SLUICE_RATE          percent of the link speed the driver claims; 10 Gb/s for virtual devices (1)
--   SLUICE_FIRST         first destination address (100.64.0.1)
--   SLUICE_DESTINATIONS  how many addresses from there on (1000)
--   SLUICE_MIX           a name of M.mixes (all)
--   SLUICE_SIZE          frame bytes with FCS (512)
--   SLUICE_DST_MAC, SLUICE_SRC_MAC
--   SLUICE_RESULT        file that the counts are written to, one "name value" a line

local M = {}

M.tx, M.rx = "0", "1"

-- Least and largest frame that Pktgen sends, FCS included.
M.min_size, M.max_size = 64, 1518

-- Range mode adds `inc` to the TOS octet of each packet and starts over above `max`.
M.mixes = {
  not_ect = { start = 0, min = 0, max = 0, inc = 0 },
  ect1 = { start = 1, min = 1, max = 1, inc = 0 },
  ect0 = { start = 2, min = 2, max = 2, inc = 0 },
  ect1_ect0 = { start = 1, min = 1, max = 2, inc = 1 },
  not_ect_ect1 = { start = 0, min = 0, max = 1, inc = 1 },
  not_ect_ect0 = { start = 0, min = 0, max = 2, inc = 2 },
  all = { start = 0, min = 0, max = 3, inc = 1 },
}

-- Packets until a range starts over.
local function period(range)
  if range.inc == 0 then return 1 end
  return (range.max - range.min) // range.inc + 1
end

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

local function number(name, default)
  local text = os.getenv(name)
  local value = tonumber(text or default)
  if not value then error(name .. " is not a number: " .. text) end
  return value
end

function M.settings()
  local mix = os.getenv("SLUICE_MIX") or "all"
  if not M.mixes[mix] then error("SLUICE_MIX is unknown: " .. mix) end
  return {
    seconds = number("SLUICE_SECONDS", 5),
    rate = number("SLUICE_RATE", 1),
    first = os.getenv("SLUICE_FIRST") or "100.64.0.1",
    destinations = math.floor(number("SLUICE_DESTINATIONS", 1000)),
    mix = M.mixes[mix],
    size = math.floor(number("SLUICE_SIZE", 512)),
    dst_mac = os.getenv("SLUICE_DST_MAC") or "02:00:00:00:00:01",
    src_mac = os.getenv("SLUICE_SRC_MAC") or "02:00:00:00:00:fe",
    result = os.getenv("SLUICE_RESULT"),
  }
end

-- The address `n` after a dotted one.
function M.address(first, n)
  local a, b, c, d = first:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  if not a then error("not an IPv4 address: " .. first) end
  local value = ((a << 24) | (b << 16) | (c << 8) | d) + n
  return string.format("%d.%d.%d.%d", value >> 24 & 255, value >> 16 & 255, value >> 8 & 255, value & 255)
end

-- All ranges of a port advance in step, so a range only meets every value of another when their periods have no
-- common factor: gives the least number from `wanted` on that has none with `others`.
function M.coprime(wanted, others)
  local n = math.max(1, wanted)
  for _, other in ipairs(others) do
    if gcd(n, other) ~= 1 then return M.coprime(n + 1, others) end
  end
  return n
end

local function set_range(setter, range)
  for _, what in ipairs({ "start", "min", "max", "inc" }) do setter(M.tx, what, range[what]) end
end

-- Range mode: many destinations, a mix of codepoints, and a range of frame sizes (one size: inc = 0).
function M.ranges(s, sizes)
  local destinations = M.coprime(s.destinations, { period(s.mix), period(sizes) })
  local last = M.address(s.first, destinations - 1)
  local range = pktgen.range
  set_range(range.dst_mac, { start = s.dst_mac, min = s.dst_mac, max = s.dst_mac, inc = "00:00:00:00:00:00" })
  set_range(range.src_mac, { start = s.src_mac, min = s.src_mac, max = s.src_mac, inc = "00:00:00:00:00:00" })
  range.ip_proto(M.tx, "udp")
  set_range(range.dst_ip, { start = s.first, min = s.first, max = last, inc = "0.0.0.1" })
  set_range(range.src_ip, { start = "198.51.100.7", min = "198.51.100.7", max = "198.51.100.7", inc = "0.0.0.0" })
  set_range(range.dst_port, { start = 5001, min = 5001, max = 5001, inc = 0 })
  set_range(range.src_port, { start = 443, min = 443, max = 443, inc = 0 })
  set_range(range.tos, s.mix)
  set_range(range.pkt_size, sizes)
  pktgen.set_range(M.tx, "on")
  return destinations
end

-- Single mode: one destination, one codepoint, one size. 23.03 measures latency in this mode only.
function M.single(s)
  pktgen.set_type(M.tx, "ipv4")
  pktgen.set_proto(M.tx, "udp")
  pktgen.set_mac(M.tx, "dst", s.dst_mac)
  pktgen.set_mac(M.tx, "src", s.src_mac)
  pktgen.set_ipaddr(M.tx, "dst", s.first)
  pktgen.set_ipaddr(M.tx, "src", "198.51.100.7/24")
  pktgen.set(M.tx, "sport", 443)
  pktgen.set(M.tx, "dport", 5001)
  pktgen.set(M.tx, "size", s.size)
  pktgen.tos(M.tx, s.mix.start)
end

-- Sends for the time set, then lets what is under way arrive.
function M.send(s)
  pktgen.set(M.tx, "count", 0)
  pktgen.set(M.tx, "rate", s.rate)
  pktgen.clr()
  pktgen.delay(200)
  pktgen.start(M.tx)
  pktgen.delay(math.floor(s.seconds * 1000))
  pktgen.stop(M.tx)
  pktgen.delay(1500)
end

-- Counters of a port. Releases after 24.07 moved them into `curr`.
local function counters(port)
  local stats = pktgen.portStats(port, "port")[tonumber(port)]
  return stats.curr or stats
end

-- The counts of a run, by name.
function M.counts()
  local sent, received = counters(M.tx), counters(M.rx)
  return {
    tx_packets = sent.opackets,
    tx_errors = sent.oerrors,
    rx_packets = received.ipackets,
    rx_missed = (received.imissed or 0) + received.rx_nombuf,
  }
end

-- Latency as far as this release tells it: the fields differ, and later ones export no pktStats.
function M.latency(counts)
  local stats = pktgen.pktStats and pktgen.pktStats(M.rx)[tonumber(M.rx)]
  for name, value in pairs(stats and stats.latency or {}) do
    if type(value) == "number" then counts["latency_" .. name] = value end
  end
end

-- Writes the counts where the runner looks for them, and on the screen.
function M.report(s, counts)
  local lines = {}
  for name, value in pairs(counts) do lines[#lines + 1] = name .. " " .. tostring(value) end
  table.sort(lines)
  local text = table.concat(lines, "\n") .. "\n"
  if s.result then
    local file = assert(io.open(s.result, "w"))
    file:write(text)
    file:close()
  end
  print(text)
end

-- Runs a job, reports its counts or its error, and ends the generator whatever happened.
function M.run(job)
  pcall(pktgen.screen, "off")
  local ok, err = pcall(function()
    local s = M.settings()
    local counts = job(s)
    M.report(s, counts)
  end)
  if not ok then
    local name = os.getenv("SLUICE_RESULT")
    local file = name and io.open(name, "w")
    if file then
      file:write("error " .. tostring(err) .. "\n")
      file:close()
    end
    print("error: " .. tostring(err))
    pcall(pktgen.stop, M.tx)
  end
  pktgen.quit()
end

return M
