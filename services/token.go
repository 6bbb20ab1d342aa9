package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
)

// TokenOptions are the properties of a new caller of the HTTP API and the console.
type TokenOptions struct {
	Name      string    // the actor of the caller's events
	Role      string    // viewer, producer, worker, operator or admin
	Kinds     []string  // coupon.send, or coupon.* for all that begin so. Default: all kinds.
	Rate      int       // Default: the API's.
	ExpiresAt time.Time // Default: never.
	// NoSecret makes a caller that a client certificate or a trusted proxy names. Default: a bearer token.
	NoSecret bool
	// IsLink makes a link that begins one session of the console, within 2 minutes. Default: a bearer token.
	IsLink bool
	Actor  string // Default: the database's session_user.
}

// CreateToken makes a token, as the commands taskledger create token and taskledger open do. It returns its id and its
// secret; the database stores only a hash of it. A link is the path /sign-in#SECRET of the console. The login of db
// needs the role operator. It never commits.
//
// It returns an [*ledger.InvalidError] if o is invalid, there are 10,000 valid tokens, or another caller without a
// secret has this name.
func CreateToken(ctx context.Context, db ledger.DB, o TokenOptions) (id, secret string, err error) {
	create := api.CreateToken
	if o.IsLink {
		create = api.CreateLink
	}
	t, secret, err := create(ctx, db, api.TokenOptions{Name: o.Name, Role: api.Role(o.Role), Kinds: o.Kinds,
		Rate: o.Rate, ExpiresAt: o.ExpiresAt, NoSecret: o.NoSecret, Actor: o.Actor})
	return t.ID, secret, err
}

// ReadTokens returns all tokens as JSON, without secrets, including revoked ones, like taskledger show tokens -o json.
// It never commits.
func ReadTokens(ctx context.Context, db ledger.DB) (json.RawMessage, error) {
	all, err := api.ReadTokens(ctx, db)
	if err != nil {
		return nil, err
	}
	return json.Marshal(append([]api.Token{}, all...))
}

// RevokeToken revokes a token by its id. The API refuses it within 5 s. It returns false if the token does not exist or
// was revoked before. It never commits.
func RevokeToken(ctx context.Context, db ledger.DB, id, actor string) (bool, error) {
	return api.RevokeToken(ctx, db, id, actor)
}
