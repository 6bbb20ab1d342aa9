package client_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// A program finds the tasks of a tag by the API, page by page, of the kinds that it may read.
func TestTasksByTag(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	handler, err := api.New(api.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	defer handler.Drain()
	as := func(name string, kinds ...string) *client.Client {
		o := api.TokenOptions{Name: name, Role: api.Producer, Kinds: kinds}
		_, secret, err := api.CreateToken(t.Context(), db, o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{URL: server.URL, Token: secret})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	all, limited := as("all"), as("limited", "b")
	const tag = "vip & co"
	vip := []string{tag}
	_, err = all.EnqueueMany(t.Context(), []client.NewTask{{Kind: "a", BizID: "1", Tags: vip},
		{Kind: "a", BizID: "2", OrderKey: "customer/17"}, {Kind: "a", BizID: "3", Tags: vip},
		{Kind: "b", BizID: "4", Tags: vip}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := projector.New(projector.Config{DB: ledgertest.As(t, db, "relay")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for projected := 0; projected < 4 && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		page, err := all.Tasks(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		projected = len(page.Items)
	}
	for name, test := range map[string]struct {
		client *client.Client
		filter client.TaskFilter
		want   []ledger.BizID
	}{
		"tag":       {client: all, filter: client.TaskFilter{Tag: tag}, want: []ledger.BizID{"4", "3", "1"}},
		"kind":      {client: all, filter: client.TaskFilter{Tag: tag, Kind: "b"}, want: []ledger.BizID{"4"}},
		"state":     {client: all, filter: client.TaskFilter{Tag: tag, State: ledger.StateDead}, want: nil},
		"one each":  {client: all, filter: client.TaskFilter{Tag: tag, Limit: 1}, want: []ledger.BizID{"4", "3", "1"}},
		"line":      {client: all, filter: client.TaskFilter{OrderKey: "customer/17"}, want: []ledger.BizID{"2"}},
		"no such":   {client: all, filter: client.TaskFilter{Tag: "vip"}, want: nil},
		"one kind":  {client: limited, filter: client.TaskFilter{Tag: tag}, want: []ledger.BizID{"4"}},
		"all tasks": {client: all, filter: client.TaskFilter{}, want: []ledger.BizID{"4", "3", "2", "1"}},
	} {
		var have []ledger.BizID
		for {
			page, err := test.client.Tasks(ctx, &test.filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range page.Items {
				have = append(have, task.BizID)
			}
			if test.filter.StartAfter = page.Next; page.Next == "" {
				break
			}
		}
		if diff := difference.Of(test.want, have); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
