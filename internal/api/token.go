package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/token_create.sql
	tokenCreateSQL string
	//go:embed sql/token_list.sql
	tokenListSQL string
	//go:embed sql/token_revoke.sql
	tokenRevokeSQL string
)

// Token is a caller of the API, without its secret.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"` // of the caller: the actor of its events
	Role      Role      `json:"role"`
	Kinds     []string  `json:"kinds"`          // coupon.send, or coupon.* for all that begin so; none: all kinds
	Rate      int       `json:"rate,omitempty"` // requests a second; 0: the default of the API
	Secret    bool      `json:"secret"`         // false: for client certificates and proxies
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	RevokedBy string    `json:"revoked_by,omitempty"`
	// LinkUntil is the end of the link that begins a session of the console; zero: not a session.
	LinkUntil  time.Time `json:"link_until,omitzero"`
	RedeemedAt time.Time `json:"redeemed_at,omitzero"` // when the link was used; zero: not yet

	hash []byte
}

// TokenOptions are the properties of a new token.
type TokenOptions struct {
	Name      string
	Role      Role
	Kinds     []string  // Default: all kinds.
	Rate      int       // Default: the API's.
	ExpiresAt time.Time // Default: never.
	// NoSecret makes a caller that a client certificate or a trusted proxy names. Default: a bearer token.
	NoSecret bool
	Actor    string // Default: the database's session_user.
}

func (o TokenOptions) validate() error {
	if err := CheckName(o.Name); err != nil {
		return err
	}
	switch {
	case !o.Role.isValid():
		return &ledger.InvalidError{Field: "role", Value: string(o.Role), Rule: "must be one of " + roleNames()}
	case o.Rate < 0 || o.Rate > 1_000_000:
		return &ledger.InvalidError{Field: "rate", Value: fmt.Sprint(o.Rate), Rule: "must be between 1 and 1000000"}
	case len(o.Kinds) > 1000:
		return &ledger.InvalidError{Field: "kinds", Rule: fmt.Sprintf("must be at most 1000, got %d", len(o.Kinds))}
	case !o.ExpiresAt.IsZero() && (o.ExpiresAt.Before(time.Now()) || o.ExpiresAt.Year() > 9000):
		return &ledger.InvalidError{Field: "expiry", Value: o.ExpiresAt.String(), Rule: "must be in the future"}
	}
	for _, pattern := range o.Kinds {
		if err := checkPattern(pattern); err != nil {
			return err
		}
	}
	return nil
}

// The prefixes of secrets, so that scanners for leaked secrets can find them: of tokens and of links.
const (
	secretPrefix = "tlk_"
	linkPrefix   = "tll_"
)

// newSecret returns the secret of a token with an id.
func newSecret(prefix, id string) string { return prefix + id + "_" + rand.Text() }

// hashOf returns the hash of a secret, as a literal of bytea.
func hashOf(secret string) string { return fmt.Sprintf(`\x%x`, sha256.Sum256([]byte(secret))) }

// CreateToken makes a token and returns its secret, which is stored nowhere; "" with NoSecret. It never commits.
//
// It returns an [*ledger.InvalidError] if o is invalid, there are 10,000 valid tokens, or another caller without a
// secret has this name.
func CreateToken(ctx context.Context, db ledger.DB, o TokenOptions) (t Token, secret string, err error) {
	if err := o.validate(); err != nil {
		return Token{}, "", fmt.Errorf("create token: %w", err)
	}
	return insertToken(ctx, db, o, secretPrefix, time.Time{})
}

// insertToken makes a token whose secret begins with a prefix. With linkUntil, it is a link until then.
func insertToken(
	ctx context.Context, db ledger.DB, o TokenOptions, prefix string, linkUntil time.Time,
) (t Token, secret string, err error) {
	id := strings.ToLower(rand.Text()[:10])
	hash := ""
	if !o.NoSecret {
		secret = newSecret(prefix, id)
		hash = hashOf(secret)
	}
	rate := ""
	if o.Rate > 0 {
		rate = fmt.Sprint(o.Rate)
	}
	moment := func(t time.Time) *string {
		if t.IsZero() {
			return nil
		}
		return pgquery.Optional(pgquery.Time(t))
	}
	rows, err := db.Query(ctx, tokenCreateSQL, id, o.Name, pgquery.Optional(hash), string(o.Role),
		pgarray.Of(o.Kinds...), pgquery.Optional(rate), pgquery.Optional(o.Actor), moment(o.ExpiresAt),
		int64(maxTokens), moment(linkUntil))
	if err == nil {
		t, err = pgx.CollectExactlyOneRow(rows, scanToken)
	}
	switch {
	case pgerr.Is(err, pgerr.UniqueViolation):
		err = &ledger.InvalidError{Field: "name", Value: o.Name,
			Rule: "must not be used by another caller without a secret"}
	case errors.Is(err, pgx.ErrNoRows):
		err = &ledger.InvalidError{Field: "token", Rule: fmt.Sprintf("there are %d: revoke some", maxTokens)}
	}
	return t, secret, pgerr.Explain("create token", err)
}

// ReadTokens returns all tokens, including revoked ones, by name and time. It never commits.
func ReadTokens(ctx context.Context, db ledger.DB) ([]Token, error) {
	return readTokens(ctx, db, false)
}

func readTokens(ctx context.Context, db ledger.DB, isValid bool) ([]Token, error) {
	valid := int64(0)
	if isValid {
		valid = 1
	}
	rows, err := db.Query(ctx, tokenListSQL, valid)
	if err != nil {
		return nil, pgerr.Explain("read tokens", err)
	}
	all, err := pgx.CollectRows(rows, scanToken)
	return all, pgerr.Explain("read tokens", err)
}

// RevokeToken revokes a token by its id. The API refuses it within [TokensAge]. It returns false if the token does not
// exist or was revoked before. It never commits.
func RevokeToken(ctx context.Context, db ledger.DB, id, actor string) (bool, error) {
	tag, err := db.Exec(ctx, tokenRevokeSQL, id, pgquery.Optional(actor))
	return tag.RowsAffected() > 0, pgerr.Explain("revoke token", err)
}

func scanToken(row pgx.CollectableRow) (t Token, err error) {
	var kinds []string
	err = row.Scan(&t.ID, &t.Name, &t.hash, (*string)(&t.Role), &kinds, &t.Rate, pgquery.Micros(&t.CreatedAt),
		&t.CreatedBy, pgquery.Micros(&t.ExpiresAt), pgquery.Micros(&t.RevokedAt), &t.RevokedBy,
		pgquery.Micros(&t.LinkUntil), pgquery.Micros(&t.RedeemedAt))
	t.Kinds, t.Secret = append([]string{}, kinds...), t.hash != nil
	return t, err
}
