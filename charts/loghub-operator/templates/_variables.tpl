{{- /* The variables of the operator's container that the chart sets. */ -}}
{{- define "loghub.operatorVariables" -}}
{{- $name := include "loghub.fullname" . -}}
- {name: LOGHUB_EMBEDDED_ENDPOINT, value: {{ include "loghub.embeddedEndpoint" . | quote }}}
{{- with include "loghub.projectNamespace" . }}
- {name: LOGHUB_EMBEDDED_ADDRESS, value: "{{ $.Values.embeddedService.name }}.{{ . }}.svc:8080"}
{{- end }}
{{- if not (kindIs "invalid" .Values.maxProjectServices) }}
- {name: LOGHUB_MAX_PROJECT_SERVICES, value: {{ .Values.maxProjectServices | int64 | quote }}}
{{- end }}
{{- with .Values.allowedHttpHosts }}
- {name: LOGHUB_ALLOWED_HTTP_HOSTS, value: {{ join "," . | quote }}}
{{- end }}
- {name: LOGHUB_CLIENT, value: {{ .Values.logServiceClient | quote }}}
- {name: LOGHUB_WORKER_IMAGE, value: {{ include "loghub.image" (dict "image" .Values.worker.image "root" .) | quote }}}
{{- with .Values.worker.podTemplate }}
- {name: LOGHUB_WORKER_POD_TEMPLATE, value: {{ toJson . | quote }}}
{{- end }}
{{- with .Values.ipFamilyPolicy }}
- {name: LOGHUB_IP_FAMILY_POLICY, value: {{ . }}}
{{- end }}
{{- if .Values.sparkOnKubernetes.enabled }}
- {name: LOGHUB_EXECUTOR_ROLE, value: {{ if .Values.watchNamespaces }}Role{{ else }}ClusterRole{{ end }}/{{ $name }}-executors}
{{- end }}
- {name: LOGHUB_LOG_LEVEL, value: {{ .Values.logLevel }}}
- {name: LOGHUB_HTTP_ADDRESS, value: ":8081"}
{{- if not (kindIs "invalid" .Values.resyncSeconds) }}
- {name: LOGHUB_RESYNC_SECONDS, value: {{ .Values.resyncSeconds | quote }}}
{{- end }}
{{- if not (kindIs "invalid" .Values.statusIntervalSeconds) }}
- {name: LOGHUB_STATUS_INTERVAL_SECONDS, value: {{ .Values.statusIntervalSeconds | quote }}}
{{- end }}
{{- if not (kindIs "invalid" .Values.metrics.maxShardSeries) }}
- {name: LOGHUB_MAX_SHARD_SERIES, value: {{ .Values.metrics.maxShardSeries | int64 | quote }}}
{{- end }}
{{- with .Values.watchNamespaces }}
- {name: LOGHUB_WATCH_NAMESPACES, value: {{ uniq . | join "," | quote }}}
{{- end }}
- {name: LOGHUB_LEASE_NAMESPACE, value: {{ include "loghub.namespace" . | quote }}}
- {name: LOGHUB_LEASE_NAME, value: {{ $name | quote }}}
- name: LOGHUB_POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
{{- if .Values.externalMetrics.enabled }}
- {name: LOGHUB_EXTERNAL_METRICS_ADDRESS, value: ":8443"}
- {name: LOGHUB_EXTERNAL_METRICS_SERVICE, value: "{{ include "loghub.namespace" . }}/{{ $name }}-external-metrics"}
{{- if .Values.externalMetrics.certificateSecret }}
- {name: LOGHUB_EXTERNAL_METRICS_CERTS, value: /etc/loghub/external-metrics}
{{- end }}
{{- end }}
{{- if .Values.keda.enabled }}
- {name: LOGHUB_KEDA_ADDRESS, value: ":9090"}
{{- if .Values.keda.certificateSecret }}
- {name: LOGHUB_KEDA_CERTS, value: /etc/loghub/keda}
{{- end }}
{{- end }}
{{- end -}}

{{- /*
Fails if a name is there twice, since an entry would count once or the API server would refuse the object after the
rest of the release was applied. Takes {own: names, extra: list, key: field with the name, value: name of the value}.
*/ -}}
{{- define "loghub.rejectTwice" -}}
{{- $seen := dict -}}
{{- range .own -}}{{- $_ := set $seen . "the chart sets it" -}}{{- end -}}
{{- range .extra -}}
{{- $name := get . $.key -}}
{{- if hasKey $seen $name -}}
{{- fail (printf "%s: %s is there twice: %s" $.value $name (get $seen $name)) -}}
{{- end -}}
{{- $_ := set $seen $name "leave one out" -}}
{{- end -}}
{{- end -}}

{{- /*
Volumes or mounts of the user behind those of the chart, which keeps also the names and paths that it uses under other
values. Takes what loghub.rejectTwice takes.
*/ -}}
{{- define "loghub.withoutTwice" -}}
{{- include "loghub.rejectTwice" . -}}
{{- with .extra -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- /*
Variables of the user behind those of the chart. Takes {own: list, extra: list, value: name of the value}.
*/ -}}
{{- define "loghub.withExtraVariables" -}}
{{- $names := list -}}
{{- range .own -}}{{- $names = append $names .name -}}{{- end -}}
{{- include "loghub.rejectTwice" (dict "own" $names "extra" .extra "key" "name" "value" .value) -}}
{{- with concat .own (.extra | default list) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- /* Fails if labels of the user have keys of the chart's. Takes {own: text, extra: dict, value: name}. */ -}}
{{- define "loghub.rejectLabels" -}}
{{- $own := fromYaml .own -}}
{{- range $key, $_ := .extra -}}
{{- if hasKey $own $key -}}
{{- fail (printf "%s: the chart sets the label %s itself" $.value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
