package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// TokensAge is the age at which the API reads the tokens again: then a revoked token admits no request. Open streams
// end within twice that time, and a waiting request is refused when its wait ends.
const TokensAge = 5 * time.Second

// unknownAge is the least time between two reads caused by unknown tokens, which any client can send. The token may be
// newer than the last read, so the request waits for the next read; at most unknownWaiting requests wait at once.
const (
	unknownAge     = time.Second
	unknownWaiting = 100
)

// sharedID begins the ids of callers without a token, which share a rate.
const sharedID = "."

// registry contains the callers as the database stores them, and the rate of each.
type registry struct {
	read  func(context.Context) ([]Token, error)
	limit int // the default rate
	now   func() time.Time

	waiting chan struct{} // has an element for each request with an unknown token that waits

	mu       sync.Mutex // held while the tokens are read, so that one request reads them for all
	readAt   time.Time
	failedAt time.Time // when the last reading failed
	failure  error
	byID     map[string]Token
	byName   map[string]Token   // tokens without a secret: the valid one of a name, else a revoked one
	buckets  map[string]*bucket // by the callers' ids
}

func newRegistry(db ledger.DB, limit int) *registry {
	return &registry{
		read:  func(ctx context.Context) ([]Token, error) { return readTokens(ctx, db, true) },
		limit: limit, now: time.Now, waiting: make(chan struct{}, unknownWaiting), buckets: map[string]*bucket{},
	}
}

// bySecret returns the caller with a secret, or nil.
func (g *registry) bySecret(ctx context.Context, secret string) (*caller, error) {
	rest, ok := strings.CutPrefix(secret, secretPrefix)
	id, _, isComplete := strings.Cut(rest, "_")
	if !ok || !isComplete || len(secret) > 200 {
		return nil, nil
	}
	hash := sha256.Sum256([]byte(secret))
	var next time.Duration
	lookup := func() (Token, bool) {
		t, ok := g.byID[id]
		if !ok {
			next = unknownAge - g.now().Sub(g.readAt)
		}
		return t, ok && subtle.ConstantTimeCompare(t.hash, hash[:]) == 1
	}
	c, isNew, err := g.find(ctx, lookup)
	if c != nil || err != nil || isNew || next <= 0 || !g.wait(ctx, next) {
		return c, err
	}
	c, _, err = g.find(ctx, lookup)
	return c, err
}

// wait waits, and reports whether the time has passed.
func (g *registry) wait(ctx context.Context, d time.Duration) bool {
	select {
	case g.waiting <- struct{}{}:
		defer func() { <-g.waiting }()
	default:
		return false
	}
	select {
	case <-time.After(d + time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// named returns the caller that a certificate or a proxy names, or nil. isKnown reports whether a token exists for the
// name, even if the token is revoked or expired.
func (g *registry) named(ctx context.Context, name string) (c *caller, isKnown bool, err error) {
	c, _, err = g.find(ctx, func() (Token, bool) {
		var t Token
		t, isKnown = g.byName[name]
		return t, isKnown
	})
	return c, isKnown, err
}

// isValid reports whether the caller of a request may still receive answers: its token is neither revoked nor expired.
// A caller without a token is valid as long as its name has none.
func (g *registry) isValid(ctx context.Context, c *caller) (bool, error) {
	switch {
	case c.id == sharedID+anonymous:
		return true, nil
	case strings.HasPrefix(c.id, sharedID):
		_, isKnown, err := g.named(ctx, c.name)
		return !isKnown, err
	}
	found, _, err := g.find(ctx, func() (Token, bool) {
		t, ok := g.byID[c.id]
		return t, ok
	})
	return found != nil, err
}

// find returns the caller that lookup finds, after reading the tokens if they are old. isNew reports whether it has
// read them.
func (g *registry) find(ctx context.Context, lookup func() (Token, bool)) (c *caller, isNew bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	age := g.now().Sub(g.readAt)
	if age > TokensAge {
		if err := g.load(ctx); err != nil {
			return nil, false, err
		}
		isNew = true
	}
	isValid := func(t Token, ok bool) bool {
		return ok && t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || !g.now().After(t.ExpiresAt))
	}
	t, ok := lookup()
	if !isValid(t, ok) && age > unknownAge && age <= TokensAge {
		if err := g.load(ctx); err != nil {
			return nil, false, err
		}
		isNew = true
		t, ok = lookup()
	}
	if !isValid(t, ok) {
		return nil, isNew, nil
	}
	return &caller{id: t.ID, name: t.Name, role: t.Role, kinds: t.Kinds, rate: t.Rate}, isNew, nil
}

// forget makes the next request read the tokens again.
func (g *registry) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readAt = time.Time{}
}

// load reads the tokens. After a failure it returns the same error for a while, so that requests do not wait one after
// the other for a database that does not answer.
func (g *registry) load(ctx context.Context) error {
	if g.failure != nil && g.now().Sub(g.failedAt) < unknownAge {
		return g.failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), TokensAge)
	defer cancel()
	var all []Token
	if all, g.failure = g.read(ctx); g.failure != nil {
		g.failedAt = g.now()
		return g.failure
	}
	g.byID, g.byName = make(map[string]Token, len(all)), map[string]Token{}
	for _, t := range all {
		g.byID[t.ID] = t
		if _, ok := g.byName[t.Name]; !t.Secret && (!ok || t.RevokedAt.IsZero()) {
			g.byName[t.Name] = t
		}
	}
	for id := range g.buckets {
		if _, ok := g.byID[id]; !ok && !strings.HasPrefix(id, sharedID) {
			delete(g.buckets, id)
		}
	}
	g.readAt = g.now()
	return nil
}

// admit returns 0 if the caller may send a request now, else the time after which it may.
func (g *registry) admit(c *caller) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.buckets[c.id]
	if b == nil {
		limit := g.limit
		if c.rate > 0 {
			limit = c.rate
		}
		b = &bucket{interval: time.Second / time.Duration(limit)}
		g.buckets[c.id] = b
	}
	return b.take(g.now())
}

// bucket contains the requests that a caller may send at once, as many as in one second. They are refilled one by one.
type bucket struct {
	interval time.Duration // between two requests at the caller's rate
	fullAt   time.Time     // when all of them are back
}

// take takes a request out of the bucket and returns 0, or returns the time after which there is one.
func (b *bucket) take(now time.Time) time.Duration {
	fullAt := now
	if b.fullAt.After(now) {
		fullAt = b.fullAt
	}
	fullAt = fullAt.Add(b.interval)
	if delay := fullAt.Sub(now) - time.Second; delay > 0 {
		return delay
	}
	b.fullAt = fullAt
	return 0
}
