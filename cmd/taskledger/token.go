package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/operator"
)

// madeToken is the result as JSON.
type madeToken struct {
	api.Token
	Bearer string `json:"bearer,omitempty"`
}

func newCreateTokenCommand(a *app) *cobra.Command {
	var o api.TokenOptions
	var role string
	var expiresIn time.Duration
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token, and print its secret once",
		Long: `Make a token of the HTTP API, and print its secret on standard output. It is stored nowhere.
NAME is the actor of the events that the caller appends. Several tokens may have one name, so
that a token can be replaced.

The roles: viewer reads, producer also enqueues tasks, worker also takes tasks, operator also cancels, releases,
reschedules and buries them, and admin also pauses kinds.

With --no-secret the caller is known by a client certificate or a trusted proxy, which names it.`,
		Example: "  taskledger create token till-7 --role producer --kind coupon.send --kind 'mail.*'\n" +
			"  taskledger create token alice@example.com --role operator --no-secret",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Role, o.Actor = args[0], api.Role(role), actorOr(o.Actor)
			if expiresIn != 0 {
				o.ExpiresAt = time.Now().Add(expiresIn)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, db *pgxpool.Pool) error {
				t, secret, err := api.CreateToken(ctx, db, o)
				if err != nil {
					return err
				}
				return a.print(madeToken{t, secret}, func(w io.Writer) {
					fmt.Fprintf(a.stderr, "made token %s of %s, role %s\n", t.ID, plain(t.Name), t.Role)
					if secret != "" {
						fmt.Fprintf(w, "%s\n", secret)
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", string(api.Viewer), "viewer, producer, worker, operator or admin")
	cmd.Flags().StringArrayVar(&o.Kinds, "kind", nil,
		"a `kind`, or a beginning such as coupon.*; may be repeated (default: all kinds)")
	cmd.Flags().IntVar(&o.Rate, "rate", 0, "maximum number of requests a second (default: the API's)")
	addDuration(cmd.Flags(), &expiresIn, "expires-in", "how long the token works (default: until it is revoked)")
	cmd.Flags().BoolVar(&o.NoSecret, "no-secret", false, "for a client certificate or a trusted proxy")
	refuseZero(cmd.Flags(), "role", "rate", "expires-in")
	addActorFlag(cmd, &o.Actor)
	return cmd
}

func listTokens(ctx context.Context, a *app, pool *pgxpool.Pool, _ showFlags) error {
	all, err := api.ReadTokens(ctx, pool)
	if err != nil {
		return err
	}
	list := struct {
		Tokens []api.Token `json:"tokens"`
	}{append([]api.Token{}, all...)}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no tokens")
	}
	return printList(a, list, all, func(w io.Writer) { renderTokens(w, all) })
}

func renderTokens(w io.Writer, all []api.Token) {
	if len(all) == 0 {
		return
	}
	t := newTable([]any{"token", "name", "role", "kinds", "made", "by", "state"})
	for _, token := range all {
		kinds := "all"
		if len(token.Kinds) > 0 {
			kinds = plain(strings.Join(token.Kinds, ", "))
		}
		t.AppendRow(table.Row{token.ID, plain(token.Name), token.Role, kinds, ago(token.CreatedAt),
			plain(token.CreatedBy), tokenState(token)})
	}
	renderTable(w, t)
}

func tokenState(t api.Token) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked " + ago(t.RevokedAt) + " by " + plain(t.RevokedBy)
	case !t.ExpiresAt.IsZero() && time.Now().After(t.ExpiresAt):
		return "expired " + ago(t.ExpiresAt)
	case !t.LinkUntil.IsZero() && t.RedeemedAt.IsZero() && time.Now().After(t.LinkUntil):
		return "link, not used"
	case !t.LinkUntil.IsZero() && t.RedeemedAt.IsZero():
		return "link, for " + age(time.Until(t.LinkUntil))
	case !t.LinkUntil.IsZero():
		return "session, ends in " + age(time.Until(t.ExpiresAt))
	case !t.ExpiresAt.IsZero():
		return "expires in " + age(time.Until(t.ExpiresAt))
	case !t.Secret:
		return "without a secret"
	}
	return "valid"
}

// deleteToken revokes a token by its id.
func deleteToken(ctx context.Context, a *app, db *pgxpool.Pool, id string, by operator.Audit) error {
	done, err := api.RevokeToken(ctx, db, id, by.Actor)
	if err != nil {
		return err
	}
	if !done {
		return failf(exitNotFound, "there is no token %s that is not revoked", plain(id)).
			hinted("list tokens with: taskledger show tokens")
	}
	answer := struct {
		Token string `json:"token"`
		Done  string `json:"done"`
	}{id, "revoked"}
	return a.print(answer, func(w io.Writer) { fmt.Fprintf(w, "revoked %s\n", plain(id)) })
}
