package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
)

// The document has every call that the handler serves with the role that it needs, and no other. The module
// internal/systemtest checks each answer of the tests of this package against it.
func TestDocument(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	documented := map[string]api.Role{}
	for path, item := range d.Paths {
		for name, operation := range item.Operations {
			method := strings.ToUpper(name)
			pattern := method + " " + path
			if i := strings.LastIndexByte(path, '}'); i >= 0 && strings.HasPrefix(path[i+1:], ":") {
				pattern = method + " " + path[:strings.LastIndexByte(path, '{')] + "{change}"
			}
			if other, ok := documented[pattern]; ok && other != api.Role(operation.Role) {
				t.Errorf("%s has the roles %s and %s", pattern, operation.Role, other)
			}
			documented[pattern] = api.Role(operation.Role)
		}
	}
	if served := api.Operations(); !maps.Equal(served, documented) {
		t.Errorf("served %v, documented %v", served, documented)
	}
	codes := d.Components.Schemas["Problem"].Properties["code"].Enum
	names := slices.Sorted(maps.Keys(api.Problems()))
	var listed []string
	for _, c := range codes {
		listed = append(listed, c.(string))
	}
	slices.Sort(listed)
	if !slices.Equal(names, listed) {
		t.Errorf("problems %v, documented %v", names, listed)
	}
}
