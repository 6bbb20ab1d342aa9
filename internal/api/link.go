package api

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/link_redeem.sql
var linkRedeemSQL string

const (
	// LinkAge is how long a link works.
	LinkAge = 2 * time.Minute
	// SessionAge is the default age at which the session of a link ends.
	SessionAge = 12 * time.Hour
)

// CreateLink makes a link, and returns its secret, which is stored nowhere. [Handler.RedeemLink] exchanges it once,
// within [LinkAge], for the secret of a token with the properties o: a session. The link itself admits no request.
// The default of ExpiresAt is [SessionAge] from now. It never commits.
//
// It returns the errors of [CreateToken], and an [*ledger.InvalidError] with NoSecret.
func CreateLink(ctx context.Context, db ledger.DB, o TokenOptions) (t Token, secret string, err error) {
	if o.NoSecret {
		return Token{}, "", fmt.Errorf("create link: %w",
			&ledger.InvalidError{Field: "no_secret", Rule: "is for tokens only"})
	}
	if o.ExpiresAt.IsZero() {
		o.ExpiresAt = time.Now().Add(SessionAge)
	}
	if err := o.validate(); err != nil {
		return Token{}, "", fmt.Errorf("create link: %w", err)
	}
	return insertToken(ctx, db, o, linkPrefix, time.Now().Add(LinkAge))
}

// IsLink reports whether a text looks like a link's secret.
func IsLink(text string) bool {
	rest, ok := strings.CutPrefix(text, linkPrefix)
	id, random, isComplete := strings.Cut(rest, "_")
	isOfSecret := func(c rune) bool { return c < '0' || c > 'z' || c > '9' && c < 'A' || c > 'Z' && c < 'a' }
	return ok && isComplete && id != "" && len(random) >= 26 && len(text) <= 200 &&
		!strings.ContainsFunc(id+random, isOfSecret)
}

// RedeemLink exchanges the secret of a link for the secret of its session. It returns "" if the link is unknown, used,
// expired or revoked. It commits.
func (h *Handler) RedeemLink(ctx context.Context, link string) (secret string, err error) {
	if !IsLink(link) {
		return "", nil
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(link, linkPrefix), "_")
	secret = newSecret(secretPrefix, id)
	var isRedeemed bool
	_, err = pgquery.Row(ctx, h.config.DB, linkRedeemSQL, []any{link, hashOf(secret)}, &isRedeemed)
	if err != nil || !isRedeemed {
		return "", pgerr.Explain("redeem link", err)
	}
	h.registry.forget()
	return secret, nil
}
