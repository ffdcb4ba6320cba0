-- SPDX-License-Identifier: Apache-2.0
-- Stands in for Pktgen's Lua API: takes the calls of a script, checks each argument as the generator's release would
-- read it (and more strictly: Pktgen replaces an absurd value silently), and keeps them in order.
-- Source: app/lpktgenlib.c and app/pktgen-cmds.c of the releases.

local M = {}

local function fail(name, place, what, value)
  error(string.format("%s: argument %d is not %s: %s", name, place, what, tostring(value)), 0)
end

local function integer(low, high)
  return function(name, place, value)
    -- luaL_checkinteger takes floats with an integer value too
    if type(value) ~= "number" or value % 1 ~= 0 then fail(name, place, "an integer", value) end
    if value < low or value > high then fail(name, place, "in " .. low .. ".." .. high, value) end
  end
end

local function port(name, place, value)
  if type(value) ~= "string" or not value:match("^%d+$") then fail(name, place, "a port list", value) end
  if tonumber(value) > 1 then fail(name, place, "a port of this generator", value) end
end

local function one_of(...)
  local known = {}
  for _, word in ipairs({ ... }) do known[word] = true end
  return function(name, place, value)
    if not known[value] then fail(name, place, "a known word", value) end
  end
end

local function rate(name, place, value)
  if type(value) ~= "number" or value <= 0 or value > 100 then fail(name, place, "a percentage", value) end
end

local function mac(name, place, value)
  local pair = "%x%x"
  local whole = "^" .. pair .. (":" .. pair):rep(5) .. "$"
  if type(value) ~= "string" or not value:match(whole) then fail(name, place, "a MAC", value) end
end

local function ip(mask)
  return function(name, place, value)
    local dotted, rest = tostring(value):match("^(%d+%.%d+%.%d+%.%d+)(.*)$")
    if not dotted or not rest:match(mask and "^/%d+$" or "^$") then fail(name, place, "an IPv4 address", value) end
    for octet in dotted:gmatch("%d+") do
      if tonumber(octet) > 255 then fail(name, place, "an IPv4 address", value) end
    end
  end
end

local on_off = one_of("on", "off", "enable", "disable")
local field = one_of("start", "min", "max", "inc")

-- A range setter: port list, field, value; the increment has its own check.
local function ranged(value, increment)
  return { port, field, function(name, place, v, args)
    (args[2] == "inc" and increment or value)(name, place, v)
  end }
end

-- `set` reads its value by the name before it.
local settable = {
  count = integer(0, 0xffffffff), size = integer(64, 1518), rate = rate, burst = integer(1, 256),
  sport = integer(0, 65535), dport = integer(0, 65535), ttl = integer(1, 255), prime = integer(1, 65535),
}

local function set_value(name, place, value, args)
  local check = settable[args[2]]
  if not check then fail(name, 2, "what set supports", args[2]) end
  check(name, place, value)
end

local function either(...)
  local forms = { ... }
  return function(name, place, value, args)
    local check = args[2] == "src" and forms[2] or forms[1]
    check(name, place, value)
  end
end

-- Functions of both releases with their arguments.
local function common()
  local octets, ports = integer(0, 255), integer(0, 65535)
  local sizes = ranged(integer(64, 1518), integer(0, 1518))
  return {
    quit = {}, clr = {}, screen = { on_off }, start = { port }, stop = { port },
    delay = { integer(0, 3600000) }, sleep = { integer(0, 3600) }, clear = { port },
    set = { port, one_of("count", "size", "rate", "burst", "sport", "dport", "ttl", "prime"), set_value },
    set_mac = { port, one_of("dst", "src"), mac },
    set_ipaddr = { port, one_of("dst", "src"), either(ip(false), ip(true)) },
    set_proto = { port, one_of("udp", "tcp", "icmp") }, set_type = { port, one_of("ipv4", "ipv6") },
    set_range = { port, on_off }, tos = { port, octets }, latency = { port, on_off },
    portStats = { port, one_of("port", "rate") }, pktStats = { port },
    range = {
      dst_mac = ranged(mac, mac), src_mac = ranged(mac, mac), dst_ip = ranged(ip(false), ip(false)),
      src_ip = ranged(ip(false), ip(false)), ip_proto = { port, one_of("udp", "tcp", "icmp") },
      dst_port = ranged(ports, ports), src_port = ranged(ports, ports), tos = ranged(octets, octets),
      ttl = ranged(octets, octets), pkt_size = sizes,
    },
  }
end

-- What differs between releases: the shape of the answers, and functions that a later one lost.
M.releases = {
  ["23.03"] = { latency = { num_pkts = 303, num_skipped = 0, min_cycles = 925600 } },
  ["24.07"] = { latency = { num_pkts = 303, num_skipped = 0, min_us = 356.0, avg_us = 410.5, max_us = 68900.0 } },
  -- not promised, but the scripts should live: counters in `curr`, no pktStats
  ["later"] = { curr = true },
}

-- A recorder for a release. `break_at`: the number of the call that shall fail; `values`: counters that portStats gives.
function M.new(release, break_at, values)
  local shape = assert(M.releases[release], "unknown release")
  local self = { calls = {} }

  local function answer(name, args)
    if name ~= "portStats" and name ~= "pktStats" then return nil end
    local stats = { ierrors = 0, oerrors = 0, rx_nombuf = 0, imissed = 0, ipackets = 0, opackets = 0, ibytes = 0, obytes = 0 }
    for key, value in pairs(values or {}) do stats[key] = value end
    if name == "pktStats" then stats = { latency = shape.latency } end
    return { [tonumber(args[1])] = shape.curr and { curr = stats } or stats, n = 1 }
  end

  local function wrap(name, spec)
    return function(...)
      local args = { ... }
      self.calls[#self.calls + 1] = { name = name, args = args }
      if select("#", ...) ~= #spec then error(name .. ", wrong number of arguments", 0) end
      for place, check in ipairs(spec) do check(name, place, args[place], args) end
      if #self.calls == break_at then error("call " .. break_at .. " shall fail", 0) end
      return answer(name, args)
    end
  end

  self.api = { range = {} }
  for name, spec in pairs(common()) do
    if name == "range" then
      for inner, inner_spec in pairs(spec) do self.api.range[inner] = wrap("range." .. inner, inner_spec) end
    else
      self.api[name] = wrap(name, spec)
    end
  end
  if not shape.latency then self.api.pktStats = nil end
  return self
end

-- Names of the calls, in order.
function M.names(recorder)
  local names = {}
  for _, call in ipairs(recorder.calls) do names[#names + 1] = call.name end
  return names
end

return M
