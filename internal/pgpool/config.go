// Package pgpool has the settings of pools of connections that the commands and programs of users share.
package pgpool

import (
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ConnectTimeout bounds an attempt to connect if the address has no timeout.
const ConnectTimeout = 5 * time.Second

// Configure sets a timeout for connecting and a name, unless config has them, and client_encoding UTF8: keys are UTF-8,
// and a role may have another client_encoding, which would store other characters.
func Configure(config *pgxpool.Config, name string) {
	c := config.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = ConnectTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = name
	}
	maps.DeleteFunc(c.RuntimeParams, func(name, _ string) bool { return strings.EqualFold(name, "client_encoding") })
	c.RuntimeParams["client_encoding"] = "UTF8"
}

// Limit sets the greatest number of connections, unless the address has pool_max_conns.
func Limit(config *pgxpool.Config, address string, conns int) {
	if !strings.Contains(address, "pool_max_conns") {
		config.MaxConns = int32(conns)
	}
}
