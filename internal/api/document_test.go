package api_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/taskledger/taskledger/internal/api"
)

// document has what the tests read of the description of the API. References are not resolved: see resolve.
type document struct {
	Paths      map[string]pathItem
	Components struct {
		Schemas       map[string]*schema
		Parameters    map[string]*parameter
		RequestBodies map[string]*requestBody `yaml:"requestBodies"`
	}
}

type pathItem struct {
	Parameters []*parameter
	Operations map[string]*operation `yaml:",inline"` // by method, in lower case
}

type operation struct {
	Role        string `yaml:"x-role"`
	Parameters  []*parameter
	RequestBody *requestBody `yaml:"requestBody"`
}

type parameter struct {
	Ref      string `yaml:"$ref"`
	Name, In string
	Required bool
	Schema   *schema
}

type requestBody struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct{ Schema *schema }
}

type schema struct {
	Ref        string `yaml:"$ref"`
	Type       types
	Format     string
	Enum       []any
	Properties map[string]*schema
	Required   []string
	Items      *schema
}

// types are the types of a schema, one or a list.
type types []string

func (t *types) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*t = types{node.Value}
		return nil
	}
	return node.Decode((*[]string)(t))
}

func (t types) include(name string) bool { return slices.Contains(t, name) }

var readDocumentOnce = sync.OnceValues(func() (*document, error) {
	d := &document{}
	return d, yaml.Unmarshal(api.Document(), d)
})

func readDocument(t testing.TB) *document {
	t.Helper()
	d, err := readDocumentOnce()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// resolve returns what a reference names, or what has no reference.
func resolve[T any](components map[string]*T, ref string, otherwise *T) *T {
	if ref == "" {
		return otherwise
	}
	return components[ref[strings.LastIndexByte(ref, '/')+1:]]
}

func (d *document) parameter(p *parameter) *parameter {
	return resolve(d.Components.Parameters, p.Ref, p)
}

func (d *document) requestBody(b *requestBody) *requestBody {
	return resolve(d.Components.RequestBodies, b.Ref, b)
}

// schema may return nil.
func (d *document) schema(s *schema) *schema {
	if s == nil {
		return nil
	}
	return resolve(d.Components.Schemas, s.Ref, s)
}
