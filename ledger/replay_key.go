package ledger

import (
	"context"
	_ "embed"
	"strings"

	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/replay_key.sql
	replayKeySQL string
	//go:embed sql/key_events.sql
	keyEventsSQL string
)

// fewEvents is how many events of a prefix [Events] reads by the primary key, from the start for each page. For a
// prefix with more events it reads the whole range in the order of positions.
const fewEvents = 10_000

// useKeys makes a replay read its pages by the primary key, if the prefix has few events.
func (r *replay) useKeys(ctx context.Context) error {
	kind, id, isKind := strings.Cut(r.r.Prefix, "/")
	if !isKind {
		return nil
	}
	keys := []any{kind, id, endOfPrefix(id)}
	var events int64
	_, err := pgquery.Row(ctx, r.db, keyEventsSQL, append(keys, int64(fewEvents+1)), &events)
	if err == nil && events <= fewEvents {
		r.keys = keys
	}
	return err
}

// endOfPrefix returns the lowest text that is higher than each biz_id with a prefix, in the order of bytes.
func endOfPrefix(prefix string) string {
	const surrogates, afterSurrogates, last = 0xd800, 0xe000, '\U0010ffff'
	runes := []rune(prefix)
	for n := len(runes); n > 0; n-- {
		if next := runes[n-1] + 1; next <= last {
			if next == surrogates {
				next = afterSurrogates
			}
			return string(runes[:n-1]) + string(next)
		}
	}
	return strings.Repeat(string(last), MaxBizIDLen/len(string(last))+1) // longer than each biz_id
}
