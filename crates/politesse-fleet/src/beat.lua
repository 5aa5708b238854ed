-- Counts a node, and returns the members of the fleet.
--
-- KEYS: fleet, nodes, notes. ARGV: node, run of the store, whether the node was away, its
-- generation, lease and time after which a node is forgotten (microseconds), time since
-- its latest answered heartbeat was sent, version of its list of nodes ('': none), and
-- the names that it knows, if another process of the store sent them.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end

-- Another program wrote a key of a different type, which would abort this script.
local foreign = {}
local function removes_other_type(key, answer)
    if not answer.err or not answer.err:find('WRONGTYPE') then return false end
    foreign[1 + #foreign] = key
    return redis.call('DEL', key) == 1
end
local is_lost = removes_other_type(KEYS[1], redis.pcall('HMGET', KEYS[1], 'list'))
removes_other_type(KEYS[2], redis.pcall('ZRANGE', KEYS[2], 0, 0))
removes_other_type(KEYS[3], redis.pcall('HMGET', KEYS[3], 'list'))

local fleet = redis.call('HMGET', KEYS[1], 'generation', 'born', 'run', 'list')
-- A value that is not a number was written by another program, and counts as absent.
local function number(index, name, digits)
    local value = fleet[index]
    if not value or #value <= (digits or 16) and value:find('^%d+$') then
        return tonumber(value or '0')
    end
    foreign[1 + #foreign] = name
end
-- Generations begin with the time in milliseconds, so none has more digits. A larger
-- number could not be incremented exactly.
local generation, born = number(1, 'generation', 15), number(2, 'born')
if is_lost then generation = nil end
local told = #ARGV[4] <= 15 and tonumber(ARGV[4]) or 0
local lease, list = tonumber(ARGV[5]), number(4, 'list') and fleet[4]
-- Heartbeats from before the clock was set back.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. text(now), '+inf')) do
    redis.call('ZADD', KEYS[2], text(now - lease), name)
end
local function count(from) return redis.call('ZCOUNT', KEYS[2], from, '+inf') end
local function live() return count('(' .. text(now - lease)) end
-- A node without an answer for a lease works alone only after several failed heartbeats,
-- so the first node that is back does not know whether others do.
local is_first = tonumber(ARGV[7]) >= lease and count('-inf') > 0 and live() == 0
-- A new generation is needed after another process of the store, which may have lost
-- leases; if the store does not know the generation of a node; and after a node was away,
-- which may have sent requests without the store's knowledge. A clock that was set back
-- must not keep hosts from all nodes for the same time.
local is_other = fleet[3] ~= ARGV[2] or not generation or not born or now < born
    or generation < told
if is_other or ((ARGV[3] == '1' or is_first) and born + lease <= now) then
    -- Generations advance more slowly than the time in milliseconds. So if the number was
    -- lost, the current time is larger than every earlier one.
    generation = math.max(generation or math.floor(now / 1000), told) + 1
    born = now
    redis.call('HSET', KEYS[1], 'generation', text(generation), 'born', text(born), 'run', ARGV[2])
end

-- The answer to this heartbeat may be lost: the others must leave room for a node that
-- has had no answer for a lease. Written before anything is removed, because a full store
-- refuses only the first write, and it should refuse this one.
local changed = redis.call('ZADD', KEYS[2], text(now - tonumber(ARGV[7])), ARGV[1])
changed = changed + redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now - tonumber(ARGV[6])))
for index = 9, #ARGV do
    changed = changed + redis.call('ZADD', KEYS[2], 'NX', text(now - lease), ARGV[index])
end
if changed > 0 or not list then
    list = text(now)
    redis.call('HSET', KEYS[1], 'list', list)
end

-- The names of a thousand nodes are not sent to each of them twice a second. Their number
-- also changes when another program writes a name.
local function listed() return list .. '.' .. count('-inf') end
local names = {}
if listed() ~= ARGV[8] then
    for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
        -- No node has such a name (`fleet.node`). If it had a recent heartbeat, it would
        -- count as a node that does not exist.
        if #name <= 64 and name:find('^[%w._-]+$') then
            names[1 + #names] = name
        else
            redis.call('ZREM', KEYS[2], name)
            local function hex(byte) return string.format('\\x%02x', byte:byte()) end
            foreign[1 + #foreign] = name:sub(1, 64):gsub('[^%w._-]', hex)
        end
    end
end
local removed = table.concat(foreign, ' ', 1, math.min(#foreign, 8))
local left = math.max(born + lease - now, 0)
local answer = { text(generation), text(born + lease), text(live()), listed(), removed, text(left) }
for index, name in ipairs(names) do
    answer[6 + index] = name
end
return answer
