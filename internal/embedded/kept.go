package embedded

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/taskledger/taskledger/internal/reserve"
)

// keptFile is the name of the file in the data directory that outlives the servers.
const keptFile = "addresses.json"

// kept is what the next servers in a directory have of those before, so that clients which go on
// trying find them again. (PostgreSQL keeps its password itself.)
type kept struct {
	PostgresPort int    `json:"postgres_port"`
	NATSPort     int    `json:"nats_port"`
	NATSToken    string `json:"nats_token"`
}

// readKept returns what was kept: nothing where there was nothing, or it cannot be used. A port that
// somebody else has taken meanwhile is 0.
func readKept(dir string) kept {
	var k kept
	text, err := os.ReadFile(filepath.Join(dir, keptFile))
	if err != nil || json.Unmarshal(text, &k) != nil {
		return kept{}
	}
	for _, port := range []*int{&k.PostgresPort, &k.NATSPort} {
		if *port < 0 || *port > 65535 || reserve.Free(*port) != nil {
			*port = 0
		}
	}
	return k
}

// keep writes down where servers are.
func keep(dir, databaseURL, natsURL string) error {
	var k kept
	postgres, err := url.Parse(databaseURL)
	if err != nil {
		return err
	}
	nats, err := url.Parse(natsURL)
	if err != nil {
		return err
	}
	if k.PostgresPort, err = strconv.Atoi(postgres.Port()); err != nil {
		return err
	}
	if k.NATSPort, err = strconv.Atoi(nats.Port()); err != nil {
		return err
	}
	k.NATSToken = nats.User.Username()
	return writeWhole(dir, keptFile, k)
}
