-- Counts a node, and tells it who else is there.
-- KEYS: fleet, nodes, notes. ARGV: node, run of the store, whether the node was away, its
-- generation, lease and time after which a node is forgotten (microseconds), time since
-- it asked the question that was answered last, number of the list of nodes that it has
-- ('': none), and the names that it knows, if another process of the store told it those.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end

-- A key of another type was written by somebody else. It would end this script.
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
-- Whatever is no number was written by somebody else, and counts as absent.
local function number(index, name, digits)
    local value = fleet[index]
    if not value or #value <= (digits or 16) and value:find('^%d+$') then
        return tonumber(value or '0')
    end
    foreign[1 + #foreign] = name
end
-- Generations begin with the time in milliseconds, so one of more digits is nobody's. It
-- could not be counted on.
local generation, born = number(1, 'generation', 15), number(2, 'born')
if is_lost then generation = nil end
local told = #ARGV[4] <= 15 and tonumber(ARGV[4]) or 0
local lease, list = tonumber(ARGV[5]), number(4, 'list') and fleet[4]
-- Those were heard of before the clock was set back.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. text(now), '+inf')) do
    redis.call('ZADD', KEYS[2], text(now - lease), name)
end
local function count(from) return redis.call('ZCOUNT', KEYS[2], from, '+inf') end
local function live() return count('(' .. text(now - lease)) end
-- A node without an answer for a lease goes on alone only after several questions in
-- vain, so the first one that is back cannot say whether others did.
local is_first = tonumber(ARGV[7]) >= lease and count('-inf') > 0 and live() == 0
-- Another process of the store may have lost leases, as has a store that does not know the
-- generation of a node, and a node that was away has asked hosts of which nothing is known
-- here. A clock that was set back must not keep hosts from all nodes for as long.
local is_other = fleet[3] ~= ARGV[2] or not generation or not born or now < born
    or generation < told
if is_other or ((ARGV[3] == '1' or is_first) and born + lease <= now) then
    -- Generations are counted, so that the time is later than any that was there.
    generation = math.max(generation or math.floor(now / 1000), told) + 1
    born = now
    redis.call('HSET', KEYS[1], 'generation', text(generation), 'born', text(born), 'run', ARGV[2])
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

-- The names of a thousand nodes are not told twice a second to each of them. Their number
-- changes also where somebody else writes a name.
local function listed() return list .. '.' .. count('-inf') end
local names = {}
if listed() ~= ARGV[8] then
    for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
        -- No node has such a name (`fleet.node`). As one that is heard of, it would stand
        -- for a node that is not.
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
