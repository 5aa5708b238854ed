-- Claims, renews and releases the lease of a host.
--
-- KEYS: host. ARGV: order, node, number of its claim, generation, time from which its
-- leases are granted, lease (microseconds); then the node's knowledge of the host: ages
-- of the latest start and end of a page and of the latest robots.txt (-1: none), adaptive
-- pause, delay of a robots.txt, time until the end of a back-off ('': none), incidents,
-- time to remember it for, and time since the host last sent this node a 429 or 503 (-1:
-- unknown; microseconds).
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end

local order, node, number, generation = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local opens, lease = tonumber(ARGV[5]), tonumber(ARGV[6])
local fields = { 'generation', 'holder', 'number', 'until', 'wanted', 'started', 'ended', 'robots',
    'adaptive', 'delay', 'back_off', 'incidents', 'remembered', 'freed', 'released',
    'told', 'lease' }
local known = redis.pcall('HMGET', KEYS[1], unpack(fields))

local function remember(longest)
    local left = math.max(redis.call('PTTL', KEYS[1]), 0)
    redis.call('PEXPIRE', KEYS[1], text(math.max(left, math.ceil((longest + lease) / 1000))))
end

local foreign = {}
if known.err then
    if not known.err:find('WRONGTYPE') then return known end
    redis.call('DEL', KEYS[1])
    known, foreign = {}, { KEYS[1] }
end
for index = 4, #fields do
    local value = known[index]
    if value and not (#value <= 17 and value:find('^%-?%d+$')) then
        redis.call('HDEL', KEYS[1], fields[index])
        foreign[1 + #foreign] = fields[index]
    end
end
-- Another program wrote there, and the lost data is unknown. As after a holder that gave
-- nothing back, requests to the host resume when a lease from now would have ended.
if #foreign > 0 then
    redis.call('HSET', KEYS[1], 'generation', generation, 'holder', '?', 'number', '0',
        'until', text(now + lease))
    remember(600000000)
    return { 4, table.concat(foreign, ' ') }
end

local holder, ends = known[2], tonumber(known[4] or '0')
-- A clock that was set back must not keep the host for longer than a lease. The holder's
-- lease may be longer than this node's, if `fleet.lease` was changed in between.
local longest = math.max(lease, math.min(tonumber(known[17] or '0'), 60000000))
if ends > now + longest then
    ends = now + longest
    redis.call('HSET', KEYS[1], 'until', text(ends))
end
local wanted = tonumber(known[5] or '0')
local is_wanted = now < wanted and wanted <= now + 250000 and 1 or 0

local is_holder = holder == node and known[3] == number
if order == 'end_back_off' then
    if redis.call('EXISTS', KEYS[1]) == 1 then
        redis.call('HSET', KEYS[1], 'back_off', text(now), 'incidents', '0', 'released', text(now))
        if not is_holder then redis.call('HSET', KEYS[1], 'freed', text(now)) end
    end
    return { 3 }
end

local function history(started, ended, back_off, incidents)
    local function age(at) return at and math.max(now - tonumber(at), 0) or -1 end
    return { 1, is_wanted, age(started), age(ended), age(known[8]),
        tonumber(known[9] or '0'), tonumber(known[10] or '0'), text(tonumber(known[13] or '0')),
        incidents or '0', back_off and text(tonumber(back_off) - now) or '' }
end

if order == 'claim' then
    if holder and holder ~= node and now < ends then
        redis.call('HSET', KEYS[1], 'wanted', text(now + 250000))
        return { 0, ends - now }
    end
    if known[1] ~= generation and now < opens then
        return { 0, opens - now }
    end
    -- A holder that never released the lease may have sent requests to the host until its
    -- end; nodes that were away, until the generation opened.
    local latest = 0
    if holder and holder ~= node then latest = ends end
    if known[1] ~= generation then latest = math.max(latest, opens) end
    local started, ended = tonumber(known[6]), tonumber(known[7])
    if latest > 0 then
        ended = math.max(ended or 0, latest)
        if started then started = math.max(started, latest) end
        redis.call('HSET', KEYS[1], 'ended', text(ended))
        if started then redis.call('HSET', KEYS[1], 'started', text(started)) end
    end
    redis.call('HSET', KEYS[1], 'generation', generation, 'holder', node, 'number', number,
        'until', text(now + lease), 'lease', text(lease))
    remember(600000000)
    return history(started, ended, known[11], known[12])
end

if order == 'renew' and not is_holder then
    return { 0, 0 }
end
-- The holder may not know yet that another node reported a later back-off. Until it does,
-- it must not overwrite anything with older values.
local is_told = is_holder and ends - lease <= tonumber(known[16] or '0')
local function note(field, value, before)
    if not is_holder or is_told then value = math.max(value, tonumber(before or '0')) end
    -- Limited to the number of digits that are read back.
    value = math.min(value, 9e15)
    redis.call('HSET', KEYS[1], field, text(value))
    return value
end
for index, field in ipairs({ 'started', 'ended', 'robots' }) do
    local age = tonumber(ARGV[6 + index])
    if age >= 0 then note(field, now - age, known[5 + index]) end
end
note('adaptive', tonumber(ARGV[10]), known[9])
note('delay', tonumber(ARGV[11]), known[10])
local asked = tonumber(ARGV[15])
-- The holder may not know yet that an operator ended the back-off that it reports. That
-- does not apply if the host has sent it a 429 or 503 since.
local freed = tonumber(known[14] or '0')
local is_freed = is_holder and ends - lease <= freed and (asked < 0 or now - asked <= freed)
-- After an operator has ended the latest back-off of a host, reports of other nodes may
-- date from before that: they were cut off, or restarted. (Ages are not exact after their
-- way to a node and back.)
local is_released = false
if not is_holder and known[15] then
    local released = tonumber(known[15])
    is_released = asked >= 0 and now - asked <= released
        or asked < 0 and tonumber(known[11] or '0') <= released + 1000000
end
local back_off, incidents = known[11], known[12]
if ARGV[12] ~= '' and not is_freed and not is_released then
    back_off = note('back_off', now + tonumber(ARGV[12]), back_off)
    incidents = note('incidents', tonumber(ARGV[13]), incidents)
    if not is_holder and tonumber(known[11] or '0') < back_off then
        redis.call('HSET', KEYS[1], 'told', text(now))
    end
end
note('remembered', tonumber(ARGV[14]), known[13])
remember(tonumber(ARGV[14]))
if order == 'renew' then
    redis.call('HSET', KEYS[1], 'generation', generation, 'until', text(now + lease), 'lease',
        text(lease))
    if is_freed or is_told then
        return history(known[6], known[7], back_off, incidents and text(incidents))
    end
    return { 1, is_wanted }
end
if is_holder then redis.call('HDEL', KEYS[1], 'holder', 'number', 'until') end
return { 2 }
