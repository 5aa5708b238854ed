-- Counts a node, and tells it who else is there.
-- KEYS: fleet, nodes. ARGV: node, run of the store, whether the node was away, its
-- generation, lease and time after which a node is forgotten (microseconds), time since
-- it asked the question that was answered last, number of the list of nodes that it has
-- ('': none), and the names that it knows, if another process of the store told it those.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end

local fleet = redis.call('HMGET', KEYS[1], 'generation', 'born', 'run', 'list')
local generation, born = tonumber(fleet[1] or '0'), tonumber(fleet[2] or '0')
local lease, list = tonumber(ARGV[5]), fleet[4]
-- Another process of the store may have lost leases, and a node that was away has
-- asked hosts of which nothing is known here. A clock that was set back must not keep
-- hosts from all nodes for as long.
local is_other = fleet[3] ~= ARGV[2] or now < born
if is_other or (ARGV[3] == '1' and born + lease <= now) then
    generation = math.max(generation, tonumber(ARGV[4])) + 1
    born = now
    redis.call('HSET', KEYS[1], 'generation', text(generation), 'born', text(born), 'run', ARGV[2])
end

-- Those were heard of before the clock was set back.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. text(now), '+inf')) do
    redis.call('ZADD', KEYS[2], text(now - lease), name)
end
-- Nobody knows whether the answer to this question comes: the others must leave room
-- for a node from when it has had none for a lease. Before anything is removed: a store
-- that is full refuses only what is written first, and is to refuse this.
local changed = redis.call('ZADD', KEYS[2], text(now - tonumber(ARGV[7])), ARGV[1])
changed = changed + redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now - tonumber(ARGV[6])))
for index = 9, #ARGV do
    changed = changed + redis.call('ZADD', KEYS[2], 'NX', text(now - lease), ARGV[index])
end
if changed > 0 or not list then
    list = text(now)
    redis.call('HSET', KEYS[1], 'list', list)
end

local live = redis.call('ZCOUNT', KEYS[2], '(' .. text(now - lease), '+inf')
local answer = { text(generation), text(born + lease), text(live), list }
-- The names of a thousand nodes are not told twice a second to each of them.
if list ~= ARGV[8] then
    for index, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
        answer[4 + index] = name
    end
end
return answer
