package difference

import (
	"reflect"
	"slices"
	"unsafe"
)

// reference is a value that may contain itself.
type reference struct {
	at  unsafe.Pointer
	of  reflect.Type
	len int // of a slice: others may begin at the same address
}

func referenceOf(v reflect.Value) (r reference, ok bool) {
	switch {
	case v.Kind() == reflect.Slice:
		return reference{v.UnsafePointer(), v.Type(), v.Len()}, !v.IsNil()
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Map:
		return reference{at: v.UnsafePointer(), of: v.Type()}, !v.IsNil()
	}
	return r, false
}

// comparison compares two values.
type comparison struct {
	emptyIsNil bool
	compared   map[[2]reference]bool // ends cycles
}

func (c *comparison) equal(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	if c.emptyIsNil && (a.Kind() == reflect.Map || a.Kind() == reflect.Slice) && a.Len()+b.Len() == 0 {
		return true
	}
	if isNil(a) || isNil(b) {
		return isNil(a) == isNil(b)
	}
	if method, ok := equalMethod(a.Type()); ok {
		return method.Func.Call([]reflect.Value{a, b})[0].Bool()
	}
	from, isReference := referenceOf(a)
	to, _ := referenceOf(b)
	if c.compared[[2]reference{from, to}] {
		return true
	}
	if isReference {
		c.compared[[2]reference{from, to}] = true
	}
	return c.equalParts(a, b)
}

func isNil(v reflect.Value) bool {
	return slices.Contains([]reflect.Kind{
		reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan,
	}, v.Kind()) && v.IsNil()
}

// equalParts compares two values of one type that are not nil.
func (c *comparison) equalParts(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		return c.equal(a.Elem(), b.Elem())
	case reflect.Struct:
		a, b = readable(a), readable(b)
		for i := range a.NumField() {
			if !c.equal(field(a, i), field(b, i)) {
				return false
			}
		}
		return true
	case reflect.Array, reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !c.equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for i := a.MapRange(); i.Next(); {
			other := b.MapIndex(i.Key())
			if !other.IsValid() || !c.equal(i.Value(), other) {
				return false
			}
		}
		return true
	case reflect.Func:
		return false
	default:
		return a.Equal(b)
	}
}

// equalMethod returns the method Equal of a type whose argument may be of the same type.
func equalMethod(t reflect.Type) (method reflect.Method, ok bool) {
	if t.Kind() == reflect.Interface {
		return method, false // the method of the value in it
	}
	method, ok = t.MethodByName("Equal")
	return method, ok && method.Type.NumIn() == 2 && t.AssignableTo(method.Type.In(1)) &&
		method.Type.NumOut() == 1 && method.Type.Out(0).Kind() == reflect.Bool
}

// readable returns a struct whose fields can be read by [field].
func readable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// field returns a field of a readable struct as if it were exported: its methods may be called.
func field(v reflect.Value, i int) reflect.Value {
	f := v.Field(i)
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
}
