// Package console is the web console of the ledger, an [http.Handler]: its state now, the tasks and their events, dead
// tasks, kinds, workers, schedules and subscribers. `taskledger serve --listen` serves it at /, or mount it in a server
// of yours:
//
//	callers, err := api.New(api.Config{DB: pool})
//	handler, err := console.New(console.Config{DB: pool, API: callers})
//	mux.Handle("/v1/", callers)
//	mux.Handle("/", handler)
//
// The pages are made on the server. They work without JavaScript, which adds that they follow the ledger.
//
// # Callers
//
// The callers, their roles and kinds are those of package api: a token, a client certificate or a trusted proxy names
// them. A token is entered on the page /sign-in, and is kept in a cookie that scripts cannot read, that no other site
// sends, and that ends with the browser. It is examined at each request, so a revoked token ends its sessions within
// [api.TokensAge]. Each act is an event of the ledger with the caller as its actor and the reason that it gave.
//
// # Security
//
// A page loads nothing from other servers, and its Content-Security-Policy admits no inline script or style. A form has
// a token of the session in the browser, and a request of another origin is refused. Texts of the ledger are escaped;
// characters that are not printable, such as those that change the direction of writing, are shown as escapes. Values
// of members of JSON whose names are those of secrets are hidden, see [Config].Hide.
//
// # Cost
//
// Each page but one reads a bounded part of the ledger by an index, and counts no tasks or events. The page of dead
// tasks groups all of them, so its cost grows with their number.
package console
