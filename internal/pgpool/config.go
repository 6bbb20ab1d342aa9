// Package pgpool configures connection pools. The commands and users' programs share these settings.
package pgpool

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ConnectTimeout bounds an attempt to connect if the address does not set a timeout.
const ConnectTimeout = 5 * time.Second

// Parse parses an address of PostgreSQL. It refuses a host with an @, because that is the end of a password whose @ is
// not escaped: connection errors would quote it. Its own errors may quote parts of a password.
func Parse(address string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	hosts := []string{config.ConnConfig.Host}
	for _, f := range config.ConnConfig.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if strings.LastIndex(host, "@") > 0 && !strings.HasPrefix(host, "/") { // not a socket
			return nil, errors.New("a host must not contain @: write an @ of a password as %40")
		}
	}
	return config, nil
}

// Configure sets timeouts for connecting and pings, and a name, unless config sets them. It also sets client_encoding
// to UTF8: keys are UTF-8, and a role may have another client_encoding, which would store other characters.
func Configure(config *pgxpool.Config, name string) {
	c := config.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = ConnectTimeout
	}
	if config.PingTimeout == 0 { // otherwise a pool waits a minute for a server that hangs before it is closed
		config.PingTimeout = ConnectTimeout
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
