package services_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// A program serves the API next to its own pages. Drain ends waiting requests before the server shuts down.
func ExampleNewHandler() {
	db, done := ledgertest.Example("api", "reader", "producer", "operator")
	defer done()
	handler, err := services.NewHandler(services.HandlerConfig{DB: db})
	check(err)
	_, token, err := services.CreateToken(context.Background(), db, services.TokenOptions{
		Name: "till-7", Role: "producer", Kinds: []string{"coupon.*"},
	})
	check(err)

	mux := http.NewServeMux()
	mux.Handle("/v1/", handler)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if name, err := handler.Admit(r, "viewer"); err == nil {
			fmt.Fprintf(w, "the shop, for %s\n", name)
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer handler.Drain()

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
		check(response.Body.Close())
		fmt.Println(response.StatusCode, response.Header.Get("Location") != "")
	}
	r, err := http.NewRequest(http.MethodGet, server.URL, nil)
	check(err)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	check(err)
	page, err := io.ReadAll(response.Body)
	check(err)
	check(response.Body.Close())
	fmt.Print(string(page))
	// Output:
	// 201 true
	// 200 true
	// 403 false
	// the shop, for till-7
}
