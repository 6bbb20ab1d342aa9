package api_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
)

// A server answers clients of an earlier minor version, and refuses others with the cure.
func TestClientsOfOtherVersions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		server, client string
		cure           string // "": it is answered
	}{
		{server: "1.3", client: ""},
		{server: "1.3", client: "1.3"},
		{server: "1.3", client: "1.0"},
		{server: "1.10", client: "1.9"},
		{server: "1.3", client: "1.4", cure: "upgrade the server"},
		{server: "2.0", client: "1.9", cure: "upgrade the client"},
		{server: "1.3", client: "1", cure: "upgrade the server"},
	} {
		err := api.CheckProtocol(test.server, test.client)
		var p *client.Problem
		isRefused := errors.As(err, &p) && strings.Contains(p.Cure, test.cure)
		if test.cure == "" && err != nil || test.cure != "" && !isRefused {
			t.Errorf("client %q of server %s: %v", test.client, test.server, err)
		}
	}
}
