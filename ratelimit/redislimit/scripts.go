package redislimit

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A script is put together from a piece for each limit, in which @ stands for its number,
// so that a call with a single limit runs no more than that takes. KEYS[@] is its key, and
// what its pieces are told is @1, @2 and so on. Behind what all limits are told stand the
// numbers of the call: @want, and where they matter @least and the caps, of which @cap is that
// of the limit. All is text in ARGV; + 0 makes a number of it, which costs less than tonumber.
//
// Numbers in scripts are doubles. All are whole and below 2^53, so they are exact; that
// is also true of a quotient rounded down, and of a remainder.
//
// A script looks at every limit before it changes any. A refusal takes nothing, and gives
// no key a longer life; one that is found without an end gets one.

const clockHead = `
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
`

// rounding is what all algorithms but the token bucket need.
const rounding = `
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
`

// takeHead is told how many tokens are wanted, and how many are needed if that is fewer.
const takeHead = `
local want = @want + 0
local least = (@least or want) + 0
local got, which, retry, expires = want, 0, -1, 9e15
`

// takeMid ends a call that is refused: which limit has the longest to go, and how long.
const takeMid = `
if got < least then return {0, which, retry, 0} end
`

// takeTail says of a call that got what it wanted only how long that matters.
const takeTail = `
if got == want then return expires end
return {got, 0, 0, expires}
`

const backHead = `
local back = @want + 0
`

// pieces are what an algorithm adds to a script.
type pieces struct {
	args int    // number of arguments, the cap (or -1) being the last
	look string // lowers got, and says how long it takes when that is below least
	take string // takes got tokens
	back string // gives back back tokens
}

var algorithms = [...]pieces{
	// The state is the time at which the bucket will be full, in whole microseconds (16
	// digits, for the next centuries), the rate that this was reckoned at, and a fraction of
	// a microsecond if there is one. d is the time until then, in
	// units of which a token takes p, and a microsecond has u. A key lives for a second at
	// least, as to make one anew costs more than to keep it.
	bucket: {
		args: 4,
		look: `
local p@, u@, b@, r@ = @1 + 0, @2 + 0, @3 + 0, @4
local d@, s@ = 0, redis.call('GET', KEYS[@])
if s@ then
  local n = 16 + #r@
  if string.sub(s@, 17, n) == r@ then
    d@ = (string.sub(s@, 1, 16) - now) * u@
    if #s@ > n then d@ = d@ + string.sub(s@, n + 1) end
  else
    local q, p, u, f = string.match(s@, '^(%d+):(%d+):(%d+):(%d*)$')
    if q then
      d@ = (q - now) * u + (tonumber(f) or 0)
      if tonumber(p) ~= p@ or tonumber(u) ~= u@ then d@ = math.ceil(d@ / p * p@) end
    end
  end
  if d@ < 0 then d@ = 0 end
  if d@ > b@ then
    d@ = b@
    redis.call('SET', KEYS[@], string.format('%d%s%d', now + math.floor(d@ / u@), r@, d@ % u@), 'PX', math.ceil(d@ / u@ / 1000))
  end
end
if @cap and @cap + 0 >= 0 and b@ - @cap * p@ > d@ then d@ = b@ - @cap * p@ end
if d@ > b@ - want * p@ then
  local a = math.floor((b@ - d@) / p@)
  if a < least then
    local r = math.ceil((d@ + least * p@ - b@) / u@)
    if r > retry then retry = r; which = @ end
    if s@ and redis.call('PTTL', KEYS[@]) == -1 then redis.call('PEXPIRE', KEYS[@], math.max(1, math.ceil(d@ / u@ / 1000))) end
  end
  if a < got then got = a end
end
`,
		take: `
d@ = d@ + got * p@
local f@ = d@ % u@
local t@ = (d@ - f@) / u@
if f@ == 0 then
  s@ = string.format('%d%s', now + t@, r@)
else
  s@ = string.format('%d%s%d', now + t@, r@, f@)
end
redis.call('SET', KEYS[@], s@, 'PX', t@ < 999000 and '1000' or (t@ - t@ % 1000) / 1000 + 1)
if t@ < expires then expires = t@ end
`,
		back: `
local p@, u@, r@ = @1 + 0, @2 + 0, @4
local s@ = redis.call('GET', KEYS[@])
if s@ then
  local q, p, u, f = string.match(s@, '^(%d+):(%d+):(%d+):(%d*)$')
  if q and tonumber(p) == p@ and tonumber(u) == u@ then
    local d = (q - now) * u + (tonumber(f) or 0) - back * p@
    if d > 0 then
      redis.call('SET', KEYS[@], string.format('%d%s%d', now + math.floor(d / u), r@, d % u), 'PX', math.ceil(d / u / 1000))
    else
      redis.call('DEL', KEYS[@])
    end
  end
end
`,
	},

	// The state is the number of tokens taken; the window is the life of the key.
	fixed: {
		args: 2,
		look: `
local l@, w@, c@ = @1 + 0, @2 + 0, (@cap or -1) + 0
local s@, t@ = redis.call('GET', KEYS[@]), w@
local n@ = tonumber(s@ or 0) or 0
if s@ then
  t@ = redis.call('PTTL', KEYS[@])
  if t@ < 0 or t@ > w@ then
    t@ = w@
    redis.call('PEXPIRE', KEYS[@], w@)
  end
  if t@ < 1 then t@ = 1 end
  s@ = n@
end
if c@ >= 0 and l@ - c@ > n@ then n@ = l@ - c@ end
local a@ = l@ - n@
if a@ < least then
  if t@ * 1000 > retry then retry = t@ * 1000; which = @ end
end
if a@ < got then got = a@ end
`,
		take: `
if s@ then
  redis.call('INCRBY', KEYS[@], string.format('%d', n@ + got - s@))
else
  redis.call('SET', KEYS[@], string.format('%d', n@ + got), 'PX', t@)
end
expires = min(expires, t@ * 1000)
`,
		back: `
local n@ = tonumber(redis.call('GET', KEYS[@]) or 0) or 0
if n@ > 0 then redis.call('DECRBY', KEYS[@], string.format('%d', n@ < back and n@ or back)) end
`,
	},

	// The state is the number of the window, and the tokens taken in the one before it
	// and in it. Time is counted in units of m microseconds; e is how much of the window
	// has passed.
	sliding: {
		args: 3,
		look: `
local l@, w@, m@, c@ = @1 + 0, @2 + 0, @3 + 0, (@cap or -1) + 0
local i@ = floor(now / m@)
local e@ = i@ % w@
i@ = floor(i@ / w@)
local v@, n@, s@ = 0, 0, redis.call('GET', KEYS[@])
if s@ then
  local i, v, n = string.match(s@, '^(%d+):(%d+):(%d+)$')
  i = tonumber(i)
  if i == i@ then
    v@, n@ = tonumber(v), tonumber(n)
  elseif i == i@ - 1 then
    v@ = tonumber(n)
  elseif i and i == i@ + 1 then
    i@, e@, v@, n@ = i, 0, tonumber(v), tonumber(n)
  end
end
local o@ = ceil(v@ * (w@ - e@) / w@)
if c@ >= 0 and l@ - c@ - o@ > n@ then n@ = l@ - c@ - o@ end
local a@ = l@ - o@ - n@
if a@ < 0 then a@ = 0 end
if a@ < least then
  local room, r = l@ - least - n@, 0
  if room >= 0 then
    r = w@ - floor(room * w@ / v@)
  else
    r = w@ + max(0, w@ - floor((l@ - least) * w@ / n@))
  end
  r = max(1, (i@ * w@ + r) * m@ - now)
  if r > retry then retry = r; which = @ end
  if s@ and redis.call('PTTL', KEYS[@]) == -1 then redis.call('PEXPIRE', KEYS[@], ceil(2 * w@ * m@ / 1000)) end
end
if a@ < got then got = a@ end
`,
		take: `
redis.call('SET', KEYS[@], string.format('%d:%d:%d', i@, v@, n@ + got), 'PX', ceil(((i@ + 2) * w@ * m@ - now) / 1000))
expires = min(expires, (i@ + 1) * w@ * m@ - now)
`,
		back: `
local w@, m@ = @2 + 0, @3 + 0
local s@, t@ = redis.call('GET', KEYS[@]), redis.call('PTTL', KEYS[@])
if s@ and t@ > 0 then
  local i, v, n = string.match(s@, '^(%d+):(%d+):(%d+)$')
  if i and tonumber(i) == floor(floor(now / m@) / w@) then
    redis.call('SET', KEYS[@], string.format('%d:%d:%d', i, v, max(0, n - back)), 'PX', t@)
  end
end
`,
	},

	// The state is a sorted set with a member for each token, by time.
	log: {
		args: 2,
		look: `
local l@, w@, c@ = @1 + 0, @2 + 0, (@cap or -1) + 0
redis.call('ZREMRANGEBYSCORE', KEYS[@], '-inf', string.format('%d', now - w@))
local n@ = redis.call('ZCARD', KEYS[@])
local a@ = l@ - n@
if c@ >= 0 and c@ < a@ then a@ = c@ end
if a@ < 0 then a@ = 0 end
if a@ < least then
  local r, z = n@ + least - l@, nil
  if r > 0 then z = redis.call('ZRANGE', KEYS[@], r - 1, r - 1, 'WITHSCORES') end
  if z and z[2] then r = z[2] + w@ - now else r = ceil(w@ / l@) end
  if r > retry then retry = r; which = @ end
  if n@ > 0 and redis.call('PTTL', KEYS[@]) == -1 then redis.call('PEXPIRE', KEYS[@], ceil(w@ / 1000)) end
end
if a@ < got then got = a@ end
`,
		take: `
local k@ = redis.call('ZCOUNT', KEYS[@], string.format('%d', now), string.format('%d', now))
for j = 1, got do redis.call('ZADD', KEYS[@], string.format('%d', now), string.format('%d:%d', now, k@ + j)) end
redis.call('PEXPIRE', KEYS[@], ceil(w@ / 1000))
expires = min(expires, w@)
`,
		back: ``,
	},
}

// script is a script with its digest.
type script struct{ text, sha string }

func newScript(text string) script { return script{text, redis.NewScript(text).Hash()} }

// run runs a script with keys and arguments, for which the first three places of args are
// free. A server that does not have it is sent it.
func (s script) run(ctx context.Context, by *carrier, c redis.UniversalClient, keys int, args []any) (any, error) {
	args[0], args[1], args[2] = "evalsha", s.sha, keys
	cmd := command(ctx, args)
	if err := by.carry(ctx, c, cmd); err != nil {
		return nil, err
	}
	v, err := cmd.Result()
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return v, err
	}
	args = slices.Clone(args) // the client may have kept those
	args[0], args[1] = "eval", s.text
	cmd = command(ctx, args)
	_ = c.Process(ctx, cmd)
	return cmd.Result()
}

func command(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// scripts are those for the limits of a configuration.
type scripts struct {
	take, back script
	args       int // that the limits are told
}

// compose puts the scripts together.
func compose(kinds []kind) scripts {
	args := 0
	for _, k := range kinds {
		args += algorithms[k].args
	}
	of := func(n int) string { return "ARGV[" + strconv.Itoa(n) + "]" }
	call := strings.NewReplacer("@want", of(args+1), "@least", of(args+2))
	var look, take, back strings.Builder
	head, told := clockHead, 0
	for i, k := range kinds {
		a := algorithms[k]
		pairs := []string{"@cap", of(args + 3 + i)}
		for j := range a.args {
			pairs = append(pairs, "@"+strconv.Itoa(j+1), of(told+j+1))
		}
		piece := strings.NewReplacer(append(pairs, "@", strconv.Itoa(i+1))...)
		look.WriteString(piece.Replace(a.look))
		take.WriteString(piece.Replace(a.take))
		back.WriteString(piece.Replace(a.back))
		told += a.args
		if k != bucket {
			head = clockHead + rounding
		}
	}
	return scripts{
		take: newScript(head + call.Replace(takeHead) + look.String() + takeMid + take.String() + takeTail),
		back: newScript(head + call.Replace(backHead) + back.String() + "return 1\n"),
		args: args,
	}
}

// nodesScript notes that a process is there and counts those that were heard of of late. It
// is told the process and the time for which it is remembered, in microseconds.
var nodesScript = redis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
redis.call('ZADD', KEYS[1], string.format('%d', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
return redis.call('ZCARD', KEYS[1])
`)

// probeScript needs what the others need: to be let write.
var probeScript = redis.NewScript(`
redis.call('TIME')
redis.call('SET', KEYS[1], 1, 'PX', 1000)
return 1
`)
