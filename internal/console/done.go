package console

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

const (
	// doneCookie is the cookie with the result of an act, for the next page.
	doneCookie = "taskledger_done"
	// maxDone is the maximum number of characters of a result.
	maxDone = 300
	// maxCatchUp bounds the wait of an act for the projection, so that lists agree with the act.
	maxCatchUp = time.Second
)

// setDone makes the next page of the session show the result of an act.
func (h *Handler) setDone(w http.ResponseWriter, r *http.Request, text string) {
	h.setCookie(w, r, doneCookie, base64.RawURLEncoding.EncodeToString([]byte(printable.Short(text, maxDone))))
}

// takeDone returns the result of the last act, once.
func (h *Handler) takeDone(w http.ResponseWriter, r *http.Request) string {
	value := h.cookie(r, doneCookie)
	if value == "" {
		return ""
	}
	h.setCookie(w, r, doneCookie, "")
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return ""
	}
	return printable.Short(string(text), maxDone)
}

// awaitLists waits until the lists show the newest event, or for maxCatchUp.
func (h *Handler) awaitLists(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxCatchUp)
	defer cancel()
	newest, _, err := ledger.ReadBack(ctx, h.config.DB, ledger.Range{}, ledger.BackOptions{Limit: 1, Walk: 1})
	if err == nil && len(newest) == 1 {
		_ = projector.WaitFor(ctx, h.config.DB, newest[0].Position) // else the lists follow later
	}
}
