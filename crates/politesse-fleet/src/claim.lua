-- Claims the fetch of a robots.txt for a process, renews the claim, or gives it back.
--
-- KEYS: claim. ARGV: process, number of the claim, time for which it is valid ('0': give
-- it back), and the longest time that a node may claim (milliseconds).
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
    if not holder.err:find('WRONGTYPE') then return holder end
    redis.call('DEL', KEYS[1])
    holder = false
end
local claim = ARGV[1] .. ' ' .. ARGV[2]
if ARGV[3] == '0' then
    if holder == claim then redis.call('DEL', KEYS[1]) end
    return 1
end
-- An earlier claim of the same process belongs to a fetch that has ended. A value that is
-- not a claim, or is valid for longer than any claim, was written by another program.
local owner, left = holder and holder:match('^(.*) %d+$'), redis.call('PTTL', KEYS[1])
if owner and owner ~= ARGV[1] and 0 < left and left <= tonumber(ARGV[4]) then return 0 end
redis.call('SET', KEYS[1], claim, 'PX', ARGV[3])
return 1
