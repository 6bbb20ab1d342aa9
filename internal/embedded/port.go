package embedded

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/taskledger/taskledger/internal/reserve"
)

// addressesFile is the name of the file with the port, in the data directory.
const addressesFile = "addresses.json"

// addresses is the part of the address that the next server in a directory reuses, so that clients reconnect. Package
// pgserver keeps the password.
type addresses struct {
	PostgresPort int `json:"postgres_port"`
}

// readPort returns the port of the last server, and whether another process listens on it. The port is 0 if the file
// does not exist or is damaged.
func readPort(dir string) (port int, isTaken bool) {
	var a addresses
	text, err := os.ReadFile(filepath.Join(dir, addressesFile))
	if err != nil || json.Unmarshal(text, &a) != nil || a.PostgresPort < 1 || a.PostgresPort > 65535 {
		return 0, false
	}
	return a.PostgresPort, reserve.Free(a.PostgresPort) != nil
}

// LastPort returns the port of the last PostgreSQL in a data directory, or 0.
func LastPort(dir string) int {
	port, _ := readPort(dir)
	return port
}

// writePort writes the port of a running server.
func writePort(dir, databaseURL string) error {
	address, err := url.Parse(databaseURL)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		return err
	}
	return writeAtomically(dir, addressesFile, addresses{PostgresPort: port})
}
