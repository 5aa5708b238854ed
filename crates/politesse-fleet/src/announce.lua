-- Adds to the list of changes that the rules of an origin for a crawler have changed.
-- KEYS: changes. ARGV: URL of the robots.txt, product token, and how many changes are kept.
-- Answers 1 if the list was somebody else's, and removed.
local function add()
    return redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'url', ARGV[1], 'token', ARGV[2])
end
local added = add()
if type(added) ~= 'table' or not added.err then return 0 end
-- Of another type, or at its end: nobody can add to it.
if not added.err:find('WRONGTYPE') and not added.err:find('last possible ID') then return added end
redis.call('DEL', KEYS[1])
added = add()
return type(added) == 'table' and added.err and added or 1
