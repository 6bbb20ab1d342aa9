// Package reserved separates the kinds and actors of taskledger itself from its users' kinds and actors. The services
// that enqueue such tasks allow it in the context of the call; programs outside of this module cannot.
//
// In the database, the policies of migrations/roles.sql enforce the same rule for every role but the owner.
package reserved

import (
	"context"
	"strings"
)

// KindPrefix begins the kinds of taskledger itself.
const KindPrefix = "taskledger."

// FiringActorPrefix begins the actors of the firings of schedules. A schedule's name follows.
const FiringActorPrefix = "schedule/"

type allowKey struct{}

// Allow returns a context in which package ledger enqueues tasks of reserved kinds and with reserved actors.
func Allow(ctx context.Context) context.Context { return context.WithValue(ctx, allowKey{}, true) }

// IsAllowed reports whether ctx is one of [Allow].
func IsAllowed(ctx context.Context) bool { return ctx.Value(allowKey{}) != nil }

// IsKind reports whether a kind is reserved.
func IsKind[T ~string](kind T) bool { return strings.HasPrefix(string(kind), KindPrefix) }

// IsActor reports whether an actor is reserved.
func IsActor(actor string) bool { return strings.HasPrefix(actor, FiringActorPrefix) }
