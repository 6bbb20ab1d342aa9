package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/ledger"
)

// A worker may start before any task is enqueued: then the hint that names similar kinds is a later one.
func TestWorkerLogsEachHintOnce(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	details := []string{"none yet", "none yet", "did you mean a.b?", "did you mean a.b?"}
	n := 0 // a session asks one call at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the connection goes unnoticed
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path != "/v1/work":
			_, _ = io.WriteString(w, `{"released":0}`)
		case n == len(details):
			stop()
			<-r.Context().Done()
		default:
			_, _ = fmt.Fprintf(w, `{"protocol":"1.0","batch":"","heartbeat_every":10,"tasks":[],"unknown_kinds":[`+
				`{"kind":"a.c","detail":%q}]}`, details[n])
			n++
		}
	}))
	defer server.Close()
	c, err := client.New(client.Config{URL: server.URL, Token: "tlk_x"})
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	err = c.Work(ctx, client.WorkOptions{Kinds: []ledger.Kind{"a.c"},
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		Handle: func(context.Context, client.WorkTask) (any, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	text := logged.String()
	if strings.Count(text, "none yet") != 1 || strings.Count(text, "did you mean") != 1 {
		t.Errorf("logged %s", text)
	}
}
