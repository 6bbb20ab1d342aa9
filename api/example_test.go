package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/taskledger/taskledger/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A program of yours serves the API beside its own pages. When its server begins to shut down, requests that wait are
// answered.
func ExampleNew() {
	db, done := ledgertest.Example(databaseRoles...)
	defer done()
	handler, err := api.New(api.Config{DB: db})
	check(err)
	_, token, err := api.CreateToken(context.Background(), db, api.TokenOptions{
		Name: "till-7", Role: api.Producer, Kinds: []string{"coupon.*"},
	})
	check(err)

	mux := http.NewServeMux()
	mux.Handle("/v1/", handler)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the shop") })
	server := httptest.NewUnstartedServer(mux)
	server.Config.ReadHeaderTimeout = api.ReadHeaderTimeout
	server.Config.MaxHeaderBytes = api.MaxHeaderBytes
	server.Config.RegisterOnShutdown(handler.Drain)
	server.Start()
	defer func() { check(server.Config.Shutdown(context.Background())) }()

	for _, body := range []string{
		`{"kind": "coupon.send", "biz_id": "order-17", "args": {"percent": 10}}`,
		`{"kind": "coupon.send", "biz_id": "order-17", "args": {"percent": 10}}`, // again
		`{"kind": "mail.send", "biz_id": "order-17"}`,
	} {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/v1/tasks", strings.NewReader(body))
		check(err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		check(err)
		_, err = io.Copy(io.Discard, response.Body)
		check(err)
		check(response.Body.Close())
		fmt.Println(response.Status, response.Header.Get("Location"))
	}
	// Output:
	// 201 Created /v1/tasks/coupon.send/order-17
	// 200 OK /v1/tasks/coupon.send/order-17
	// 403 Forbidden
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
