package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// LimitedWorker is a role with the rights of a worker for some kinds only: it neither reads nor appends events of
// other tasks.
type LimitedWorker struct {
	// Name is the end of the role's name: for the database "shop", the name "mails" makes the role "shop_worker_mails".
	Name string
	// Kinds are kinds, or beginnings of kinds followed by .*: "mail.*" is all kinds that begin with "mail.".
	Kinds []string
}

// ParseLimitedWorker returns the worker that a text such as "mails=coupon.send,mail.*" describes.
//
// Errors: an [*ledger.InvalidError] if the text is invalid.
func ParseLimitedWorker(text string) (LimitedWorker, error) {
	name, kinds, _ := strings.Cut(text, "=")
	l := LimitedWorker{Name: name, Kinds: strings.Split(kinds, ",")}
	return l, l.validate("")
}

// String is the inverse of [ParseLimitedWorker].
func (l LimitedWorker) String() string { return l.Name + "=" + strings.Join(l.Kinds, ",") }

// worker is the role that is limited.
const worker = "worker"

var limitedName = regexp.MustCompile(`^[a-z0-9_]+$`)

const (
	kindWildcard = ".*"
	reservedKind = "taskledger."
)

// validate returns an [*ledger.InvalidError] for the first rule that l breaks.
func (l LimitedWorker) validate(prefix string) error {
	longest := maxRoleName - len(RoleName(prefix, worker+"_"+readsSuffix))
	if !limitedName.MatchString(l.Name) || len(l.Name) > longest || strings.HasSuffix("_"+l.Name, readsSuffix) {
		rule := fmt.Sprintf("must have 1 to %d characters of a-z 0-9 _, as in mails=coupon.send,mail.*, "+
			"and not end in %s", longest, readsSuffix)
		return &ledger.InvalidError{Field: "limited worker", Value: l.Name, Rule: rule}
	}
	for _, kind := range l.Kinds {
		stem := ledger.Kind(strings.TrimSuffix(kind, kindWildcard))
		if err := stem.Validate(); err != nil {
			return err
		}
		if strings.HasPrefix(string(stem)+".", reservedKind) {
			return &ledger.InvalidError{Field: "kind", Value: kind, Rule: "must not be a kind of taskledger itself"}
		}
	}
	return nil
}

// role returns the name of the role, without the prefix of a database.
func (l LimitedWorker) role() string { return worker + "_" + l.Name }

// unlimitedView is readable for a worker but not for a limited worker, because it shows the keys of all kinds.
const unlimitedView = "taskledger_internal.event_fence"

// withLimited returns roles with the roles of limited workers appended.
func withLimited(roles []string, limited []LimitedWorker) []string {
	for _, l := range limited {
		roles = append(roles, l.role())
	}
	return roles
}

// hasKind are the tables whose rows belong to a kind.
var hasKind = []string{"taskledger.event", "taskledger.timer"}

// readsSuffix ends the name of the policy that admits reading.
const readsSuffix = "_reads"

// policies returns the policies of the role: worker's policies, for the kinds of l.
func (l LimitedWorker) policies(all []policy) (own []policy) {
	for _, p := range all {
		end, ok := strings.CutPrefix(p.name, worker)
		if !ok || end != "" && end[0] != '_' {
			continue
		}
		p.name, p.roles, p.limit = l.role()+end, l.role(), " "+l.String()
		if slices.Contains(hasKind, p.table) {
			p.rule = l.rule() + " and (" + p.rule + ")"
		}
		own = append(own, p)
	}
	return own
}

// rule returns the condition that a row belongs to a kind of l. A literal needs no escapes, because a kind contains no
// such character.
func (l LimitedWorker) rule() string {
	var exact, conditions []string
	for _, kind := range l.Kinds {
		if stem, ok := strings.CutSuffix(kind, "*"); ok {
			conditions = append(conditions, "starts_with(kind, '"+stem+"')")
		} else {
			exact = append(exact, "'"+kind+"'")
		}
	}
	if len(exact) > 0 {
		conditions = slices.Insert(conditions, 0, "kind in ("+strings.Join(exact, ", ")+")")
	}
	return "(" + strings.Join(conditions, " or ") + ")"
}

// existingLimited selects the limited workers that an earlier call has made, with the names of their policies.
const existingLimited = `
	select p.polname::text, substring(obj_description(p.oid, 'pg_policy') from '^taskledger migrate roles \S+ (\S+)$')
	  from pg_catalog.pg_policy p
	 where p.polrelid = 'taskledger.event'::regclass and p.polcmd = 'a'
	   and obj_description(p.oid, 'pg_policy') ~ '^taskledger migrate roles \S+ \S+$'
	 order by 1`

// addExisting returns limited with the workers of earlier calls that are not among them.
func addExisting(
	ctx context.Context, db *sql.DB, prefix string, limited []LimitedWorker,
) ([]LimitedWorker, error) {
	rows, err := db.QueryContext(ctx, existingLimited)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the error
	all := slices.Clone(limited)
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		l, err := ParseLimitedWorker(text)
		isOurs := err == nil && name == RoleName(prefix, l.role())
		if isOurs && !slices.ContainsFunc(all, func(o LimitedWorker) bool { return o.Name == l.Name }) {
			all = append(all, l)
		}
	}
	return all, rows.Err()
}
