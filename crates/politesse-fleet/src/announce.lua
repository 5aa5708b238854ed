-- Adds an entry to the list of changes: the rules of an origin for a crawler have
-- changed.
--
-- KEYS: changes. ARGV: URL of the robots.txt, product token, and number of changes to
-- keep. Returns 1 if another program had written the list, which was removed.
local function add()
    return redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'url', ARGV[1], 'token', ARGV[2])
end
local added = add()
if type(added) ~= 'table' or not added.err then return 0 end
-- The key has another type, or the list is at its last ID, so nothing can be added.
if not added.err:find('WRONGTYPE') and not added.err:find('last possible ID') then return added end
redis.call('DEL', KEYS[1])
added = add()
return type(added) == 'table' and added.err and added or 1
