"""Lua scripts that the broker runs atomically, so that both sides agree on the result.

Times are the broker's own: clocks of machines differ.

Toolcrib keeps these scripts loaded, and a service's user of the broker may run loaded scripts and
none of its own: such a script could block the broker for all users for ever.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import redis

NOW = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function whole(number) return string.format('%.0f', number) end
"""

# KEYS requests, claim; ARGV group, entry, process, deadline, most. The milliseconds that are left
# to the process that has the request; 0 where it is too late, withdrawn, or another's.
TAKE = (
    NOW
    + """
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
local left = math.min(tonumber(ARGV[4]) - now, tonumber(ARGV[5]))
if left <= 0 then return 0 end
if redis.call('SET', KEYS[2], ARGV[3], 'NX', 'PX', whole(left + 60000)) then
  return math.floor(left)
end
return 0
"""
)

# KEYS requests; ARGV group, entry, then the entry's fields: for another process to take.
REQUEUE = """
redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return redis.call('XDEL', KEYS[1], ARGV[2])
"""

# KEYS accepting, alive, served; ARGV process, lease in ms, whether it accepts, digest or nothing.
HEARTBEAT = (
    NOW
    + """
local till = whole(now + tonumber(ARGV[2]))
redis.call('ZADD', KEYS[2], till, ARGV[1])
if ARGV[3] == '1' then
  redis.call('ZADD', KEYS[1], till, ARGV[1])
  if ARGV[4] ~= '' then redis.call('ZADD', KEYS[3], till, ARGV[4]) end
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
for _, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now - 3600000))
  redis.call('EXPIRE', key, 7200)
end
return 1
"""
)

LOADED = (TAKE, REQUEUE, HEARTBEAT)


def run_script(connection: Any, script: str, keys: Sequence[str], *said: Any) -> Any:
    """Raises `redis.RedisError`; `NoPermissionError` as long as Toolcrib has not loaded them."""
    digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
    try:
        return connection.evalsha(digest, len(keys), *keys, *said)
    except redis.exceptions.NoScriptError:
        return connection.eval(script, len(keys), *keys, *said)


# What a service needs of the broker: `ACL SETUSER name on >secret resetkeys resetchannels
# ~toolcrib:<organization>:svc:* -@all` and each of these with a plus.
COMMANDS = (
    "evalsha", "expire", "mget", "ping", "set", "time", "xack", "xadd", "xautoclaim", "xdel",
    "xgroup|create", "xgroup|delconsumer", "xpending", "xreadgroup", "zadd", "zrem",
    "zremrangebyscore", "client|setinfo",
)  # fmt: skip
