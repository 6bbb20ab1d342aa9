package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Servers that only speak PostgreSQL's protocol are refused by name.
func TestDoctorOfOtherProducts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, want string
		hasCitus      bool
	}{
		{version: "PostgreSQL 17.6 on x86_64-pc-linux-gnu, compiled by gcc", want: levelOK},
		{version: "PostgreSQL 17.6 on aarch64", hasCitus: true, want: levelWarning},
		{version: "CockroachDB CCL v25.3.1 (x86_64-pc-linux-gnu, built 2026/01/02)", want: levelFailure},
		{version: "PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu", want: levelFailure},
	} {
		d := &diagnosis{}
		d.examineProduct(c.version, c.hasCitus)
		if f := d.Findings[0]; f.Level != c.want || f.Level != levelOK && !strings.Contains(f.Cure, "docs/managed.md") {
			t.Errorf("%s: %+v, want %s", c.version, f, c.want)
		}
	}
}

// A login with BYPASSRLS, such as postgres of Supabase, is named: the policies do not keep it to its job.
func TestDoctorOfALoginThatBypassesPolicies(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	config := ledgertest.As(t, db, "worker").Config()
	const name, password = "doctor_bypasses", "not secret"
	ledgertest.ExecAsOwner(t, db,
		"create role "+name+" login bypassrls password '"+password+"' in role "+config.ConnConfig.User)
	t.Cleanup(func() { ledgertest.ExecAsOwner(t, db, "drop role "+name) })
	config.ConnConfig.User, config.ConnConfig.Password = name, password
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	d := &diagnosis{}
	d.examineServer(t.Context(), newApp(), pool)
	for _, f := range d.Findings {
		if f.Check == "login" {
			if f.Level != levelWarning || !strings.Contains(f.Text, "BYPASSRLS: yes") {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("no finding about the login: %+v", d.Findings)
}
