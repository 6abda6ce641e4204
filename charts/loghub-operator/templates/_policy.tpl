{{- /* A setting of the policy for the namespace of the request, in CEL. Takes {root: ., setting: ...}. JSON is CEL. */ -}}
{{- define "loghub.policySetting" -}}
{{- $given := dict }}
{{- range $namespace, $settings := .root.Values.policy.namespaces }}
{{- if hasKey $settings $.setting }}
{{- $_ := set $given $namespace (index $settings $.setting) }}
{{- end }}
{{- end -}}
{{ toJson $given }}[?request.namespace].orValue({{ toJson (index .root.Values.policy.default .setting) }})
{{- end -}}

{{- /*
Regular expressions of the entries in a list, in CEL. Takes {list: ..., any: what `*` stands for}. The schema of
the values allows no other special character; a bracket without its opening one is none.
*/ -}}
{{- define "loghub.policyPatterns" -}}
{{ .list }}.map(entry, entry == '*' ? '^.*$' : '^' + entry.replace('.', '\\.').replace('[', '\\[').replace('*', '{{ .any }}') + '$')
{{- end -}}
