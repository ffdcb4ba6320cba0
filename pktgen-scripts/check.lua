-- SPDX-License-Identifier: Apache-2.0
-- Checks every script against the recorder: lua5.3 check.lua. Closes with "N passed, M failed".

package.path = package.path .. ";./?.lua"
local recorder = require("recorder")

local SCRIPTS = { "mix.lua", "sizes.lua", "latency.lua" }
local RELEASES = { "23.03", "24.07", "later" }
-- Calls that must come in this order; others may stand between.
local ORDER = { "screen", "set", "clr", "start", "delay", "stop", "delay", "portStats", "quit" }

local passed, failed = 0, 0
local environment, output = {}, {}

-- The scripts read their settings from here, and print to nowhere.
os.getenv = function(name) return environment[name] end -- luacheck: ignore
local say = print
print = function(text) output[#output + 1] = text end -- luacheck: ignore

local function check(name, body)
  local ok, err = pcall(body)
  if ok then passed = passed + 1 else
    failed = failed + 1
    say("FAILED " .. name .. ": " .. tostring(err))
  end
end

-- Runs a script on a recorder; gives it and the lines of the result file.
local function run(script, release, break_at, values)
  local result = os.tmpname()
  environment.SLUICE_RESULT = result
  local r = recorder.new(release, break_at, values)
  pktgen = r.api -- luacheck: ignore
  package.loaded.drive = nil
  local ok, err = pcall(dofile, script)
  local lines = {}
  for line in io.lines(result) do
    local key, value = line:match("^(%S+) (.*)$")
    lines[key] = value
  end
  os.remove(result)
  return r, lines, ok, err
end

local function count(names, wanted)
  local n = 0
  for _, name in ipairs(names) do if name == wanted then n = n + 1 end end
  return n
end

local function assert_order(names)
  local at = 1
  for _, name in ipairs(names) do if name == ORDER[at] then at = at + 1 end end
  assert(at > #ORDER, "no " .. tostring(ORDER[at]) .. " in its place: " .. table.concat(names, " "))
end

-- What a range was set to.
local function range(r, name)
  local set = {}
  for _, call in ipairs(r.calls) do if call.name == "range." .. name then set[call.args[2]] = call.args[3] end end
  return set
end

for _, script in ipairs(SCRIPTS) do
  for _, release in ipairs(RELEASES) do
    local name = script .. " on " .. release
    environment = {}
    local whole = recorder.names(run(script, release))

    check(name .. " makes valid calls in order and ends once", function()
      local r, lines, ok, err = run(script, release, nil, { opackets = 1000, ipackets = 990 })
      assert(ok, err)
      assert(not lines.error, lines.error)
      local names = recorder.names(r)
      assert_order(names)
      assert(names[#names] == "quit" and count(names, "quit") == 1, "quit is the last call and the only one")
      assert(count(names, "start") == 1 and count(names, "seqTable") == 0)
      assert(lines.tx_packets == "1000" and lines.rx_packets == "990", "counts are reported")
    end)

    check(name .. " ends in quit whichever call fails, and says so", function()
      for call = 1, #whole - 1 do
        local r, lines, ok, err = run(script, release, call)
        assert(ok, err)
        local names = recorder.names(r)
        assert(names[#names] == "quit" and count(names, "quit") == 1, "no quit after call " .. call .. " failed: " .. whole[call])
        -- the screen is a nicety: the run goes on without it
        assert(lines.error or whole[call] == "screen", "call " .. call .. " failed in silence: " .. whole[call])
        if count(names, "start") == 1 then assert(count(names, "stop") >= 1, "left sending") end
      end
    end)
  end
end

check("all codepoints reach every destination and every size", function()
  local sizes = { ["mix.lua"] = 1, ["sizes.lua"] = 13 }
  local codepoints = { not_ect = 1, ect1 = 1, ect0 = 1, ect1_ect0 = 2, not_ect_ect1 = 2, not_ect_ect0 = 2, all = 4 }
  for script, steps in pairs(sizes) do
    for mix, period in pairs(codepoints) do
      environment = { SLUICE_MIX = mix, SLUICE_DESTINATIONS = "26" }
      local r, lines = run(script, "24.07")
      local n = tonumber(lines.destinations)
      for _, other in ipairs({ steps, period }) do
        local a, b = n, other
        while b ~= 0 do a, b = b, a % b end
        assert(a == 1, script .. " " .. mix .. ": " .. n .. " destinations and a period of " .. other)
      end
      assert(n >= 26 and n < 30, "about as many destinations as asked: " .. n)
      local dst, tos = range(r, "dst_ip"), range(r, "tos")
      assert(dst.start == "100.64.0.1" and dst.max == "100.64.0." .. n, dst.max)
      local seen, value = 0, tos.start
      repeat
        seen, value = seen + 1, value + tos.inc
        assert(tos.start <= 3 and tos.max <= 3)
      until tos.inc == 0 or value > tos.max
      assert(seen == period, mix .. " has " .. seen .. " codepoints")
    end
  end
end)

check("addresses carry over octets", function()
  environment = { SLUICE_FIRST = "100.64.255.250", SLUICE_DESTINATIONS = "70001", SLUICE_MIX = "ect1" }
  local dst = range(run("mix.lua", "23.03"), "dst_ip")
  assert(dst.max == "100.66.17.106", dst.max)
end)

check("latency is measured in single mode, with one codepoint, at both ends", function()
  for mix, tos in pairs({ ect1 = 1, ect0 = 2, not_ect = 0 }) do
    environment = { SLUICE_MIX = mix, SLUICE_SIZE = "64" }
    local r, lines = run("latency.lua", "24.07")
    local set, on = nil, {}
    for _, call in ipairs(r.calls) do
      assert(call.name ~= "set_range" and not call.name:match("^range%."), "range mode measures no latency")
      if call.name == "tos" then set = call.args[2] end
      if call.name == "latency" then on[call.args[1]] = call.args[2] end
      if call.name == "set" and call.args[2] == "size" then assert(call.args[3] == 128, "room for the time stamp") end
    end
    assert(set == tos and on["0"] == "on" and on["1"] == "on")
    assert(lines.latency_num_pkts == "303" and lines.latency_max_us == "68900.0")
  end
end)

check("absurd settings are refused before anything is sent", function()
  for name, value in pairs({ SLUICE_MIX = "ect2", SLUICE_SECONDS = "soon", SLUICE_FIRST = "2001:db8::1", SLUICE_SIZE = "9000",
    SLUICE_RATE = "0" }) do
    environment = { [name] = value }
    local r, lines = run("mix.lua", "24.07")
    local names = recorder.names(r)
    assert(lines.error and count(names, "start") == 0 and names[#names] == "quit", name .. "=" .. value)
  end
end)

check("the recorder refuses what the generator would", function()
  local function refuses(body) assert(not pcall(body), "taken") end
  local api = recorder.new("24.07").api
  refuses(function() api.range.tos("0", "start", 256) end)
  refuses(function() api.range.tos(0, "start", 1) end)
  refuses(function() api.range.pkt_size("0", "start", 63) end)
  refuses(function() api.range.dst_ip("0", "first", "100.64.0.1") end)
  refuses(function() api.set("0", "speed", 1) end)
  refuses(function() api.set_ipaddr("0", "src", "198.51.100.7") end)
  refuses(function() api.set_mac("0", "dst", "02:00:00:00:01") end)
  refuses(function() api.start() end)
  refuses(function() api.latency("2", "on") end)
  refuses(function() api.seqTable(0, "0", {}) end)
  api.range.tos("0", "inc", 1)
end)

say(passed .. " passed, " .. failed .. " failed")
os.exit(failed == 0)
