package embedded

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/reserve"
)

// addressesFile is the name of the file with the addresses, in the data directory.
const addressesFile = "addresses.json"

// addresses are the parts of the addresses that the next servers in a directory reuse, so that clients
// reconnect. Package pgserver keeps PostgreSQL's password.
type addresses struct {
	PostgresPort int `json:"postgres_port"`
	NATSPort     int `json:"nats_port"`

	NATSPasswords natsconfig.Passwords `json:"nats_passwords"` // by user
}

// readAddresses returns the addresses of the last servers. It returns the zero value if the file does not
// exist or is damaged. A port that another process listens on is 0.
func readAddresses(dir string) addresses {
	var a addresses
	text, err := os.ReadFile(filepath.Join(dir, addressesFile))
	if err != nil || json.Unmarshal(text, &a) != nil {
		return addresses{}
	}
	for _, port := range []*int{&a.PostgresPort, &a.NATSPort} {
		if *port < 0 || *port > 65535 || reserve.Free(*port) != nil {
			*port = 0
		}
	}
	return a
}

// writeAddresses writes the addresses of running servers.
func writeAddresses(dir, databaseURL, natsHost string, passwords natsconfig.Passwords) error {
	a := addresses{NATSPasswords: passwords}
	postgres, err := url.Parse(databaseURL)
	if err != nil {
		return err
	}
	if a.PostgresPort, err = strconv.Atoi(postgres.Port()); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(natsHost)
	if err != nil {
		return err
	}
	if a.NATSPort, err = strconv.Atoi(port); err != nil {
		return err
	}
	return writeAtomically(dir, addressesFile, a)
}
