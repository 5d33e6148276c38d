package redisx

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// readOnly are the commands that change nothing, of Redis and of its usual modules.
var readOnly = set(`
	bitcount bitfield_ro bitpos command dbsize dump echo eval_ro evalsha_ro exists expiretime fcall_ro
	geodist geohash geopos georadius_ro georadiusbymember_ro geosearch get getbit getrange
	hexists hexpiretime hget hgetall hkeys hlen hmget hpexpiretime hpttl hrandfield hscan hstrlen
	httl hvals info keys lastsave lcs lindex llen lolwut lpos lrange memory mget object pexpiretime
	pfcount ping pttl randomkey role scan scard sdiff sinter sintercard sismember smembers
	smismember sort_ro srandmember sscan strlen substr sunion time touch ttl type xinfo xlen
	xpending xrange xread xrevrange zcard zcount zdiff zinter zintercard zlexcount zmscore
	zrandmember zrange zrangebylex zrangebyscore zrank zrevrange zrevrangebylex zrevrangebyscore
	zrevrank zscan zscore zunion
	json.arrindex json.arrlen json.get json.mget json.objkeys json.objlen json.resp json.strlen
	json.type ft.search ft.aggregate ft.info bf.exists bf.mexists bf.info cf.exists cf.mexists
	cf.count cms.query topk.query topk.list ts.get ts.mget ts.range ts.revrange ts.mrange
	ts.mrevrange ts.queryindex ts.info
`)

// blocking are the commands that always wait; XREAD and XREADGROUP do with BLOCK.
var blocking = set(`blpop brpop brpoplpush blmove blmpop bzpopmin bzpopmax bzmpop wait waitaof`)

// setup are the commands that set up a connection. What go-redis does so is part of the
// command that needed the connection.
var setup = set(`auth hello select readonly readwrite`)

// client are the subcommands of CLIENT that do.
var client = set(`setname setinfo maint_notifications tracking no-evict no-touch caching reply`)

// scripts are the commands that may have done a part of their work when they fail.
var scripts = set(`eval evalsha fcall exec`)

func set(names string) map[string]bool {
	m := map[string]bool{}
	for n := range strings.FieldsSeq(names) {
		m[n] = true
	}
	return m
}

// ReadOnly reports whether a command changes nothing on the server, by its name, so that it
// may reach the server more than once. Commands that it does not know are not among them.
func ReadOnly(cmd redis.Cmder) bool { return readOnly[cmd.Name()] }

// Blocking reports whether a command waits in the server for something to happen: BLPOP and its
// like, WAIT, WAITAOF, and XREAD and XREADGROUP with BLOCK.
func Blocking(cmd redis.Cmder) bool {
	switch name := cmd.Name(); name {
	case "xread", "xreadgroup":
		for _, arg := range cmd.Args() {
			s, _ := arg.(string)
			switch {
			case strings.EqualFold(s, "block"):
				return true
			case strings.EqualFold(s, "streams"): // keys follow
				return false
			}
		}
		return false
	default:
		return blocking[name]
	}
}

// sets reports whether a command sets up a connection.
func sets(cmd redis.Cmder) bool {
	name := cmd.Name()
	if setup[name] {
		return true
	}
	if args := cmd.Args(); name == "client" && len(args) > 1 {
		sub, _ := args[1].(string)
		return client[strings.ToLower(sub)]
	}
	return false
}
