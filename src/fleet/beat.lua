-- Counts a node, and tells it who else is there.
-- KEYS: fleet, nodes. ARGV: node, run of the store, whether the node was away, its
-- generation, lease and time after which a node is forgotten (microseconds), and the
-- names that it knows, if another process of the store told it those.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end

local fleet = redis.call('HMGET', KEYS[1], 'generation', 'born', 'run')
local generation, born = tonumber(fleet[1] or '0'), tonumber(fleet[2] or '0')
local lease = tonumber(ARGV[5])
-- Another process of the store may have lost leases, and a node that was away has
-- asked hosts of which nothing is known here.
if fleet[3] ~= ARGV[2] or (ARGV[3] == '1' and born + lease <= now) then
    generation = math.max(generation, tonumber(ARGV[4])) + 1
    born = now
    redis.call('HSET', KEYS[1], 'generation', text(generation), 'born', text(born), 'run', ARGV[2])
end

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now - tonumber(ARGV[6])))
for index = 7, #ARGV do
    redis.call('ZADD', KEYS[2], 'NX', text(now - lease), ARGV[index])
end
redis.call('ZADD', KEYS[2], text(now), ARGV[1])

local live, place = 0, 0
local nodes = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
local answer = { text(generation), text(born + lease), 0, 0 }
for index = 1, #nodes, 2 do
    if tonumber(nodes[index + 1]) > now - lease then live = live + 1 end
    if nodes[index] < ARGV[1] then place = place + 1 end
    answer[#answer + 1] = nodes[index]
end
answer[3], answer[4] = text(live), text(place)
return answer
