package services_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/services"
)

func TestConfigNamesEachFault(t *testing.T) {
	t.Parallel()
	err := services.Config{
		Alarms:    []byte(`{"receivers": []}`),
		Seal:      []byte(`{"key": "a"}`),
		ArchiveTo: "s3://bucket",
	}.Validate()
	for _, want := range []string{
		"DB is required", "NATS or Server.Dir is required", "services: Alarms: ", "services: Seal: ",
		"ArchiveTo needs ArchiveAfter", "needs OpenObjects",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nhas no %q", err, want)
		}
	}
	var invalid *ledger.InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("%v names no field", err)
	}
}
