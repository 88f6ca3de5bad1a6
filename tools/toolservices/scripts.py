"""Lua scripts that the broker runs atomically for callers; the package for service authors has the
others."""

from toolcrib_service.scripts import NOW

# KEYS requests, accepting, replies; ARGV timeout in ms, id, token, envelope, most that may wait.
# Returns a word for the result, then the first id of the replies and the id of the request.
SEND = (
    NOW
    + """
if redis.call('ZCOUNT', KEYS[2], whole(now), '+inf') == 0 then return {'nobody'} end
redis.call('XTRIM', KEYS[1], 'MINID', '~', whole(now - 7200000))
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[5]) then return {'full'} end
local first = redis.call('XADD', KEYS[3], '*', 'opened', '1')
redis.call('PEXPIRE', KEYS[3], whole(tonumber(ARGV[1]) + 60000))
local entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[2], 'token', ARGV[3],
  'deadline_ms', whole(now + tonumber(ARGV[1])), 'body', ARGV[4])
return {'sent', first, entry}
"""
)

# KEYS replies, claim, alive, accepting. Whether the replies are still there, who has the request,
# whether that process lives, and how many take requests.
STATE = (
    NOW
    + """
local holder = redis.call('GETRANGE', KEYS[2], 0, 500)
local till = holder ~= '' and redis.call('ZSCORE', KEYS[3], holder)
local lives = till and tonumber(till) > now
return {redis.call('EXISTS', KEYS[1]), holder, lives and 1 or 0,
  redis.call('ZCOUNT', KEYS[4], whole(now), '+inf')}
"""
)

# KEYS requests, claim; ARGV entry, our mark, ms it is kept. 1 where no process will ever take it.
WITHDRAW = """
if redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3]) then
  if ARGV[1] ~= '' then redis.call('XDEL', KEYS[1], ARGV[1]) end
  return 1
end
return redis.call('GET', KEYS[2]) == ARGV[2] and 1 or 0
"""

# KEYS requests, accepting, served; ARGV digest of an announcement.
LIFE = (
    NOW
    + """
local last = redis.call('ZRANGE', KEYS[2], 0, 0, 'REV', 'WITHSCORES')
return {redis.call('XLEN', KEYS[1]),
  redis.call('ZCOUNT', KEYS[2], whole(now), '+inf'), last[2] or '0', whole(now),
  redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0'}
"""
)

# KEYS announcements; ARGV how many, how many bytes of one. A longer one comes without its fields.
LISTEN = """
local found = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[1])
for _, entry in ipairs(found) do
  local size = 0
  for _, text in ipairs(entry[2]) do size = size + #text + 64 end
  if size > tonumber(ARGV[2]) then entry[2] = {} end
end
return found
"""
