// Package console is the web console of the ledger, an [http.Handler]: troubles, the tasks and their events, failures,
// kinds, workers, schedules and subscribers. `taskledger serve --listen` serves it at /, and services.NewHandler
// mounts it.
//
// The pages are rendered on the server. They work without JavaScript, which makes them follow the ledger.
//
// # Callers
//
// The callers, their roles and kinds come from package api: a token, a client certificate or a trusted proxy names
// them. A token is entered on the page /sign-in and stored in a cookie. Scripts cannot read it, no other site sends it,
// and it ends with the browser. The token is checked at each request, so a revoked token ends its sessions within
// [api.TokensAge]. Each act is an event of the ledger, with the caller as its actor and with the caller's reason.
//
// [Ledgers] shows several ledgers, each with callers of its own: a token of one admits to no other.
//
// # Security
//
// A page loads nothing from other servers, and its Content-Security-Policy admits no inline script or style. A form
// contains a token of the browser's session, and a request of another origin is refused. Texts of the ledger are
// escaped; unprintable characters, such as those that change the direction of writing, are shown as escapes. JSON
// values are hidden if the name of their member looks like a secret, see [Config].Hide.
//
// # Cost
//
// Each page reads a bounded part of the ledger by an index, and counts no tasks or events.
package console
