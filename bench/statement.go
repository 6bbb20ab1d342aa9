package main

import (
	"embed"
	"fmt"
)

//go:embed sql/*.sql
var statements embed.FS

// statement returns the SQL of a file.
func statement(name string) string {
	sql, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("no statement %q", name)) // a bug in this program
	}
	return string(sql)
}
