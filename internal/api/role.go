package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// Role decides the rights of a caller. Each role includes the rights of the roles before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads
	Producer Role = "producer" // enqueues tasks
	Worker   Role = "worker"   // takes tasks and ends their attempts
	Operator Role = "operator" // cancels, releases, reschedules and buries tasks; sets limits
	Admin    Role = "admin"    // pauses and resumes kinds
)

var roles = []Role{Viewer, Producer, Worker, Operator, Admin}

// Roles returns all roles, each with the rights of the roles before it.
func Roles() []Role { return slices.Clone(roles) }

func (r Role) isValid() bool { return slices.Contains(roles, r) }

// has reports whether r is least or a higher role.
func (r Role) has(least Role) bool { return slices.Index(roles, r) >= slices.Index(roles, least) }

func roleNames() string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// caller is the author of a request.
type caller struct {
	id    string // of its token
	name  string
	role  Role
	kinds []string // patterns of the kinds that it may read and change; none: all
	rate  int      // 0: the default
}

// mayUse reports whether the caller may use the kind.
func (c *caller) mayUse(k ledger.Kind) bool {
	return len(c.kinds) == 0 || slices.ContainsFunc(c.kinds, func(pattern string) bool { return matches(pattern, k) })
}

// matches reports whether a pattern is the kind, or the beginning of it before ".*".
func matches(pattern string, k ledger.Kind) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(string(k), prefix)
	}
	return pattern == string(k)
}

// checkPattern returns an [*ledger.InvalidError] if the pattern is neither a kind nor words before ".*".
func checkPattern(pattern string) error {
	err := ledger.Kind(strings.TrimSuffix(pattern, ".*")).Validate()
	if err != nil {
		return &ledger.InvalidError{Field: "kind", Value: pattern,
			Rule: "must be a kind such as coupon.send, or a beginning such as coupon.*"}
	}
	return nil
}

// CheckName returns an [*ledger.InvalidError] if the name is invalid for a caller.
func CheckName(name string) error {
	isValid := len(name) >= 1 && len(name) <= 128 && !strings.ContainsRune("._@+-", rune(name[0]))
	for _, c := range []byte(name) {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		isValid = isValid && (isLetter || strings.IndexByte("._@+-", c) >= 0)
	}
	if !isValid || reserved.IsActor(name) {
		return &ledger.InvalidError{Field: "name", Value: name,
			Rule: "must be 1 to 128 of A-Z, a-z, 0-9 and . _ @ + -, and begin with a letter or a digit"}
	}
	return nil
}

// refuseKind returns the problem of a kind that the caller may not use.
func (c *caller) refuseKind(k ledger.Kind) error {
	return problem(codeKindForbidden, fmt.Sprintf("%s may not use the kind %q", c.name, printable.Short(string(k), 80)))
}
