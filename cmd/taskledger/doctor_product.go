package main

import "strings"

// lookalikes speak PostgreSQL's protocol, with another storage.
var lookalikes = []struct{ sign, name string }{
	{sign: "CockroachDB", name: "CockroachDB"},
	{sign: "-YB-", name: "YugabyteDB"},
	{sign: "Aurora DSQL", name: "Aurora DSQL"},
	{sign: "Greenplum", name: "Greenplum"},
	{sign: "Redshift", name: "Redshift"},
}

// examineProduct examines whether the server is PostgreSQL: the feed needs its transaction ids and snapshots.
// product is what version() returns.
func (d *diagnosis) examineProduct(product string, hasCitus bool) {
	for _, l := range lookalikes {
		if strings.Contains(product, l.sign) {
			d.fail("product", "use PostgreSQL itself, on your machines or managed: docs/managed.md",
				"%s: it lacks the transaction ids and snapshots that the feed reads", l.name)
			return
		}
	}
	if hasCitus {
		d.warn("product", "do not distribute the tables of schema taskledger: docs/managed.md",
			"PostgreSQL with Citus: the ledger is in one node")
		return
	}
	d.ok("product", "PostgreSQL")
}
