{{- /*
What the operator may do in a namespace that it watches. The same as in deploy/loghub-operator.yaml
(a test compares them).
*/ -}}
{{- define "loghub.rules" -}}
- apiGroups: [loghub.dev]
  resources: [loghubconsumergroups]
  verbs: [get, list, watch, patch]
- apiGroups: [loghub.dev]
  resources: [loghubconsumergroups/status]
  verbs: [patch]
# Owner references that block the owner's deletion ask for this where that is enforced.
- apiGroups: [loghub.dev]
  resources: [loghubconsumergroups/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# Pods are read for their own words, told to leave by an annotation, restarted by deletion.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch, delete]
# Who the workers are: an account without rights of its own, and without a token in the pods.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
# Listed by our labels, to remove settings that no worker runs with any more; one by its name is
# read for a pipeline's code.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, delete]
# One Secret by its name at a time: never listed, never watched.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
  {{- with .Values.rbac.secretNames }}
  resourceNames: {{- toYaml . | nindent 4 }}
  {{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{- /* The Services of projects, in the embedded service's namespace: made, never deleted. */ -}}
{{- define "loghub.projectRules" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
{{- end -}}

{{- /* Making a Lease cannot be bound to a name, hence a role in the operator's own namespace. */ -}}
{{- define "loghub.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "loghub.fullname" . }}]
  verbs: [get, patch]
{{- if .Values.watchNamespaces }}
# The one that acts labels its own pod, so that Services find it; with a ClusterRole it may already.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
{{- end }}
{{- end -}}

{{- /* What the API of external metrics takes besides: of the whole cluster, since that is what it is of. */ -}}
{{- define "loghub.externalMetricsRules" -}}
# May the one who asks read this?
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- if not .Values.externalMetrics.certificateSecret }}
# Our certificate, made at each start.
- apiGroups: [apiregistration.k8s.io]
  resources: [apiservices]
  resourceNames: [v1beta1.external.metrics.k8s.io]
  verbs: [get, patch]
{{- end }}
{{- end -}}

{{- /*
A role and its binding to the operator. Takes {root: ., kind: Role|ClusterRole, name: ...,
namespace: ... (Role only), rules: text}.
*/ -}}
{{- define "loghub.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "loghub.labels" .root | nindent 4 }}
rules: {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "loghub.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "loghub.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
